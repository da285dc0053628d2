// A provider of OpenID Connect on a free port of this machine, for as long as
// its standard input is open. Its first line of output names it. The login_hint
// signs in there without a question: "<sub>" has the address
// <sub>@example.com, verified; "unproved:<sub>" has it unverified.
import http from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(`${process.argv[2]}/package.json`);
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')).href);
const redirects = process.argv.slice(3);

const server = http.createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;

const client = (id) => ({
  client_id: id, client_secret: `${id}-secret`, redirect_uris: redirects,
  grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
});
const provider = new Provider(issuer, {
  clients: [client('kit'), client('other')],
  cookies: { keys: ['for tests'] },
  pkce: { required: () => true },
  features: { devInteractions: { enabled: false } },
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  rotateRefreshToken: true,
  findAccount: (_, id) => {
    const [name, unproved] = id.startsWith('unproved:') ? [id.slice(9), true] : [id, false];
    return { accountId: id, claims: () => ({ sub: id, email: `${name}@example.com`, email_verified: !unproved, name }) };
  },
});

provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/interaction/')) return next();
  const { prompt, params, session } = await provider.interactionDetails(ctx.req, ctx.res);
  const result = {};
  if (prompt.name === 'login') {
    result.login = { accountId: params.login_hint };
  } else {
    const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    grant.addOIDCScope('openid email profile offline_access');
    result.consent = { grantId: await grant.save() };
  }
  ctx.respond = false;
  await provider.interactionFinished(ctx.req, ctx.res, result, { mergeWithLastSubmission: true });
});

server.on('request', provider.callback());
process.stdin.on('end', () => process.exit()).resume();
console.log(issuer);
