// One script of calls against better-auth's own server and against a running kit:
//
//   node compare.mjs http://localhost:8080
//
// It prints a JSON object: the name of each call, and what each of the two
// returned. It loads better-auth from the node_modules of the folder KIT_TEST_BETTERAUTH.
import { createHash, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const kit = process.argv[2];
const found = createRequire(path.join(process.env.KIT_TEST_BETTERAUTH ?? process.cwd(), "x.js"));
const load = (name) => import(pathToFileURL(found.resolve(name)).href);
const { betterAuth } = await load("better-auth");
const { memoryAdapter } = await load("better-auth/adapters/memory");
const { toNodeHandler } = await load("better-auth/node");
const plugins = await load("better-auth/plugins");

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// theirs is a server of better-auth with the defaults of each plugin.
async function theirs() {
  const sent = new Map();
  const server = createServer((request, response) => handler(request, response));
  await new Promise((done) => server.listen(0, "localhost", done));
  const origin = `http://localhost:${server.address().port}`;
  const keep = (to, mail) => sent.set(to, [...(sent.get(to) ?? []), mail]);
  const tables = ["user", "session", "account", "verification", "jwks", "twoFactor", "rateLimit"];
  const auth = betterAuth({
    baseURL: `${origin}/auth`,
    basePath: "/auth",
    secret: createHash("sha256").update("compare").digest("hex"),
    database: memoryAdapter(Object.fromEntries(tables.map((name) => [name, []]))),
    logger: { disabled: true },
    rateLimit: { enabled: false },
    telemetry: { enabled: false },
    emailAndPassword: {
      enabled: true,
      sendResetPassword: async ({ user, token }) => keep(user.email, { token }),
    },
    emailVerification: {
      sendOnSignUp: true,
      sendVerificationEmail: async ({ user, token }) => keep(user.email, { token }),
    },
    user: { changeEmail: { enabled: true }, deleteUser: { enabled: true } },
    plugins: [
      plugins.bearer(),
      plugins.jwt(),
      plugins.username(),
      plugins.anonymous(),
      plugins.twoFactor(),
      plugins.oneTimeToken(),
      plugins.magicLink({ sendMagicLink: async ({ email, token }) => keep(email, { token }) }),
      plugins.emailOTP({ sendVerificationOTP: async ({ email, otp }) => keep(email, { code: otp }) }),
    ],
  });
  const handler = toNodeHandler(auth);
  const mail = async (to) => sent.get(to).shift();
  return { base: `${origin}/auth`, origin, mail, close: () => server.close() };
}

// ours reads the mails of the kit in its development mailbox.
function ours() {
  const mailbox = `${kit}/__kit/mailbox`;
  const seen = new Set();
  const mail = async (to, kind) => {
    for (let tries = 0; tries < 200; tries++) {
      const list = await (await fetch(mailbox)).text();
      const rows = [...list.matchAll(/<td>([^<]*)<\/td><td><a href="([^"]+)"/g)].reverse();
      for (const row of rows.filter(([, address, link]) => address === to && !seen.has(link))) {
        const page = await (await fetch(new URL(row[2], mailbox))).text();
        const text = page.match(/<pre>([\s\S]*?)<\/pre>/)[1].replaceAll("&amp;", "&").replaceAll("&#43;", "+");
        const link = text.match(/https?:\/\/\S+/)?.[0];
        if (kind !== "code" && !link?.includes(kind)) continue;
        if (kind === "code" && !/^\d{6}$/m.test(text)) continue;
        seen.add(row[2]);
        return { token: link && (new URL(link).searchParams.get("token") ?? link.match(/reset-password\/([^?]+)/)?.[1]), code: text.match(/^\d{6}$/m)?.[0] };
      }
      await sleep(50);
    }
    throw new Error(`no mail to ${to}`);
  };
  return { base: `${kit}/auth`, origin: kit, mail, close: () => {} };
}

// client is a browser of a server: it keeps cookies and names its page.
function client(server) {
  const jar = new Map();
  return async (method, path, body, { headers = {}, raw } = {}) => {
    const all = new Headers({ origin: server.origin, accept: "application/json", ...headers });
    const cookies = [...jar].map(([name, value]) => `${name}=${value}`).join("; ");
    if (cookies && !all.has("authorization")) all.set("cookie", cookies);
    if (method === "POST" && !all.has("content-type")) all.set("content-type", "application/json");
    const sent = method === "GET" ? undefined : (raw ?? JSON.stringify(body ?? {}));
    const response = await fetch(server.base + path, { method, headers: all, body: sent, redirect: "manual" });
    for (const line of response.headers.getSetCookie()) {
      const [pair, ...attributes] = line.split(";");
      const at = pair.indexOf("=");
      if (attributes.some((a) => /^\s*max-age=(0|-\d+)$/i.test(a))) jar.delete(pair.slice(0, at));
      else jar.set(pair.slice(0, at), pair.slice(at + 1));
    }
    const text = await response.text();
    let json;
    try {
      json = JSON.parse(text);
    } catch {
      json = undefined;
    }
    return { status: response.status, headers: response.headers, json, text };
  };
}

// run makes all calls of the script and returns what each returned.
async function run(server) {
  const seen = {};
  const unique = randomUUID().slice(0, 8);
  const address = (name) => `${name}-${unique}@example.com`;
  const password = "correct horse battery";
  // note keeps the status, the code of a refusal, the field that a validation names,
  // and what else a call is about.
  const note = (name, r, also) => {
    const parts = [String(r.status)];
    if (r.status >= 400) parts.push(r.json?.code ?? "");
    if (r.json?.code === "VALIDATION_ERROR") parts.push((r.json.message ?? "").match(/\[body\.([a-zA-Z.]+)\]|\[query\.([a-zA-Z.]+)\]/)?.slice(1).find(Boolean) ?? "");
    if (also !== undefined) parts.push(String(also));
    if (name in seen) throw new Error(`two calls are named ${name}`);
    seen[name] = parts.join(" ").trim();
    return r;
  };

  // Signing up.
  const ada = client(server);
  const nobody = client(server);
  const join = (name, body) => client(server)("POST", "/sign-up/email", body).then((r) => note(name, r));
  const up = note("sign up", await ada("POST", "/sign-up/email", { name: "Ada", email: address("ada"), password }));
  seen["sign up: set-auth-token"] = String(up.headers.has("set-auth-token"));
  await join("sign up: taken", { name: "Eve", email: address("ada"), password });
  await join("sign up: short password", { name: "Eve", email: address("eve"), password: "short" });
  await join("sign up: long password", { name: "Eve", email: address("eve"), password: "x".repeat(129) });
  await join("sign up: no address", { name: "Eve", password });
  await join("sign up: bad address", { name: "Eve", email: "eve", password });
  await join("sign up: no name", { email: address("noname"), password });
  await join("sign up: no password", { name: "Eve", email: address("eve") });
  await join("sign up: password is a number", { name: "Eve", email: address("eve"), password: 12345678 });
  await join("sign up: unknown field", { name: "Eve", email: address("unknown"), password, shoeSize: 42 });
  await join("sign up: emailVerified", { name: "Eve", email: address("verified"), password, emailVerified: true });
  note("sign up: malformed JSON", await nobody("POST", "/sign-up/email", null, { raw: "{" }));
  note("sign up: text", await nobody("POST", "/sign-up/email", null, { raw: "{}", headers: { "content-type": "text/plain" } }));
  note("sign up: empty body", await nobody("POST", "/sign-up/email", {}));
  note("sign up: array", await nobody("POST", "/sign-up/email", []));

  // Verification.
  const proof = await server.mail(address("ada"), "verify-email");
  const verify = (token) => client(server)("GET", `/verify-email?token=${encodeURIComponent(token)}`);
  note("verify", await verify(proof.token));
  note("verify: again", await verify(proof.token));
  note("verify: made-up token", await verify("nonsense"));
  note("verify: no token", await nobody("GET", "/verify-email"));
  note("send verification: verified", await ada("POST", "/send-verification-email", { email: address("ada") }));
  note("send verification: unknown", await nobody("POST", "/send-verification-email", { email: address("nobody") }));
  note("send verification: bad address", await nobody("POST", "/send-verification-email", { email: "nobody" }));

  // Signing in.
  const enter = (name, body) => client(server)("POST", "/sign-in/email", body).then((r) => note(name, r));
  const phone = client(server);
  note("sign in", await phone("POST", "/sign-in/email", { email: address("ada"), password }));
  await enter("sign in: wrong password", { email: address("ada"), password: "wrong password" });
  await enter("sign in: unknown user", { email: address("nobody"), password });
  await enter("sign in: bad address", { email: "nobody", password });
  await enter("sign in: no password", { email: address("ada") });
  await enter("sign in: address is a number", { email: 1, password });
  await enter("sign in: unknown field", { email: address("ada"), password, shoeSize: 42 });
  await enter("sign in: foreign callback", { email: address("ada"), password, callbackURL: "https://evil.example/x" });
  note("sign in: foreign page", await nobody("POST", "/sign-in/email", { email: address("ada"), password }, { headers: { origin: "https://evil.example", cookie: "a=b" } }));
  note("sign in: unknown provider", await nobody("POST", "/sign-in/social", { provider: "nowhere" }));

  // Sessions.
  const session = async (who, headers) => (await who("GET", "/get-session", null, { headers })).json?.user?.email !== undefined;
  note("session", await ada("GET", "/get-session"), await session(ada));
  note("session: nobody", await nobody("GET", "/get-session"), await session(nobody));
  note("list sessions", await ada("GET", "/list-sessions"), (await ada("GET", "/list-sessions")).json?.length > 1);
  note("list sessions: nobody", await nobody("GET", "/list-sessions"));
  note("revoke session: unknown", await ada("POST", "/revoke-session", { token: "nonsense" }));
  note("revoke session: no token", await ada("POST", "/revoke-session", {}));
  note("revoke session: nobody", await nobody("POST", "/revoke-session", { token: "nonsense" }));
  note("list accounts", await ada("GET", "/list-accounts"));
  note("list accounts: nobody", await nobody("GET", "/list-accounts"));
  note("unlink: the last", await ada("POST", "/unlink-account", { providerId: "credential" }));
  note("unlink: unknown", await ada("POST", "/unlink-account", { providerId: "nowhere" }));

  // A client without cookies.
  const bearing = await client(server)("POST", "/sign-in/email", { email: address("ada"), password });
  const bearer = { authorization: `Bearer ${bearing.headers.get("set-auth-token")}` };
  note("bearer: session", await nobody("GET", "/get-session", null, { headers: bearer }), await session(nobody, bearer));
  note("bearer: list sessions", await nobody("GET", "/list-sessions", null, { headers: bearer }));
  const jwt = note("bearer: token", await nobody("GET", "/token", null, { headers: bearer }));
  seen["bearer: token is a JWT"] = String(jwt.json?.token?.split(".").length === 3);
  note("bearer: made up", await nobody("GET", "/get-session", null, { headers: { authorization: "Bearer nonsense" } }), await session(nobody, { authorization: "Bearer nonsense" }));
  note("token: nobody", await nobody("GET", "/token"));
  note("keys", await nobody("GET", "/jwks"), Array.isArray((await nobody("GET", "/jwks")).json?.keys));

  // The user.
  note("update user", await ada("POST", "/update-user", { name: "Ada Lovelace" }));
  note("update user: nothing", await ada("POST", "/update-user", {}));
  note("update user: address", await ada("POST", "/update-user", { email: address("other") }));
  note("update user: unknown field", await ada("POST", "/update-user", { name: "Ada", shoeSize: 42 }));
  note("update user: name is a number", await ada("POST", "/update-user", { name: 1 }));
  note("update user: nobody", await nobody("POST", "/update-user", { name: "Eve" }));
  note("change address: the same", await ada("POST", "/change-email", { newEmail: address("ada") }));
  note("change address: bad", await ada("POST", "/change-email", { newEmail: "ada" }));
  note("change address: nobody", await nobody("POST", "/change-email", { newEmail: address("x") }));

  // Passwords.
  const changed = "another password";
  note("change password: wrong", await ada("POST", "/change-password", { currentPassword: "wrong password", newPassword: changed }));
  note("change password: short", await ada("POST", "/change-password", { currentPassword: password, newPassword: "short" }));
  note("change password: no new one", await ada("POST", "/change-password", { currentPassword: password }));
  note("change password: nobody", await nobody("POST", "/change-password", { currentPassword: password, newPassword: changed }));
  note("change password", await ada("POST", "/change-password", { currentPassword: password, newPassword: changed }));
  seen["change password: others stay"] = String(await session(phone));
  note("change password: end others", await ada("POST", "/change-password", { currentPassword: changed, newPassword: password, revokeOtherSessions: true }));
  seen["change password: others end when asked"] = String(!(await session(phone)));
  seen["change password: own stays"] = String(await session(ada));
  note("verify password", await ada("POST", "/verify-password", { password }));
  note("verify password: wrong", await ada("POST", "/verify-password", { password: "wrong password" }));
  note("verify password: nobody", await nobody("POST", "/verify-password", { password }));
  note("lost password: unknown", await nobody("POST", "/request-password-reset", { email: address("nobody") }));
  note("lost password: bad address", await nobody("POST", "/request-password-reset", { email: "nobody" }));
  note("lost password", await nobody("POST", "/request-password-reset", { email: address("ada"), redirectTo: "/reset" }));
  const reset = await server.mail(address("ada"), "reset-password");
  note("reset: short", await nobody("POST", "/reset-password", { newPassword: "short", token: reset.token }));
  note("reset: made-up token", await nobody("POST", "/reset-password", { newPassword: password, token: "nonsense" }));
  note("reset: no token", await nobody("POST", "/reset-password", { newPassword: password }));
  note("reset", await nobody("POST", "/reset-password", { newPassword: password, token: reset.token }));
  note("reset: again", await nobody("POST", "/reset-password", { newPassword: password, token: reset.token }));
  seen["reset: sessions stay"] = String(await session(ada));

  // Links and codes.
  note("link: bad address", await nobody("POST", "/sign-in/magic-link", { email: "nobody" }));
  note("link", await nobody("POST", "/sign-in/magic-link", { email: address("ada") }));
  const link = await server.mail(address("ada"), "magic-link");
  note("link: use", await client(server)("GET", `/magic-link/verify?token=${encodeURIComponent(link.token)}`));
  note("code: no kind", await nobody("POST", "/email-otp/send-verification-otp", { email: address("ada") }));
  note("code: unknown kind", await nobody("POST", "/email-otp/send-verification-otp", { email: address("ada"), type: "other" }));
  note("code: bad address", await nobody("POST", "/email-otp/send-verification-otp", { email: "nobody", type: "sign-in" }));
  note("code", await nobody("POST", "/email-otp/send-verification-otp", { email: address("ada"), type: "sign-in" }));
  const { code } = await server.mail(address("ada"), "code");
  const other = String((Number(code) + 1) % 1_000_000).padStart(6, "0");
  const guess = (otp) => nobody("POST", "/sign-in/email-otp", { email: address("ada"), otp });
  note("code: no code", await nobody("POST", "/sign-in/email-otp", { email: address("ada") }));
  note("code: never sent", await nobody("POST", "/sign-in/email-otp", { email: address("nobody"), otp: "123456" }));
  for (const nth of ["first", "second", "third", "fourth"]) note(`code: ${nth} wrong guess`, await guess(other));
  note("code: after too many", await guess(code));
  await nobody("POST", "/email-otp/send-verification-otp", { email: address("ada"), type: "sign-in" });
  const second = await server.mail(address("ada"), "code");
  const coded = client(server);
  note("code: use", await coded("POST", "/sign-in/email-otp", { email: address("ada"), otp: second.code }));
  note("code: again", await guess(second.code));

  // User names.
  const bob = client(server);
  const named = (name, username) => client(server)("POST", "/sign-up/email", { name: "Bob", email: address(`x${name.length}`), password, username }).then((r) => note(name, r));
  const username = `Bob_${unique}`;
  note("name: sign up", await bob("POST", "/sign-up/email", { name: "Bob", email: address("bob"), password, username, displayUsername: "The Bob" }));
  const shown = (await bob("GET", "/get-session")).json?.user ?? {};
  seen["name: as given"] = String(shown.username === username.toLowerCase());
  seen["name: display name kept"] = String(shown.displayUsername);
  await named("name: short", "ab");
  await named("name: long one", "a".repeat(31));
  await named("name: bad characters", "a b c");
  await named("name: is already taken", username.toUpperCase());
  note("name: available", await nobody("POST", "/is-username-available", { username: `free_${unique}` }), (await nobody("POST", "/is-username-available", { username: `free_${unique}` })).json?.available);
  note("name: not available", await nobody("POST", "/is-username-available", { username }), (await nobody("POST", "/is-username-available", { username })).json?.available);
  note("name: available, short", await nobody("POST", "/is-username-available", { username: "ab" }));
  note("name: available, long", await nobody("POST", "/is-username-available", { username: "a".repeat(31) }));
  note("name: available, bad characters", await nobody("POST", "/is-username-available", { username: "a b c" }));
  note("name: sign in, bad characters", await nobody("POST", "/sign-in/username", { username: "a b c", password }));
  note("name: sign in, no password", await nobody("POST", "/sign-in/username", { username }));
  note("name: change, short", await bob("POST", "/update-user", { username: "ab" }));
  note("name: change display name", await bob("POST", "/update-user", { displayUsername: "Bob again" }), (await bob("GET", "/get-session")).json?.user?.displayUsername);
  note("name: sign in", await client(server)("POST", "/sign-in/username", { username, password }));
  note("name: sign in, wrong", await nobody("POST", "/sign-in/username", { username, password: "wrong password" }));
  note("name: sign in, unknown", await nobody("POST", "/sign-in/username", { username: `no_${unique}`, password }));
  note("name: sign in, short", await nobody("POST", "/sign-in/username", { username: "ab", password }));

  // Anonymous users, one-time tokens, second factors.
  const guest = client(server);
  note("anonymous", await guest("POST", "/sign-in/anonymous", {}));
  note("anonymous: again", await guest("POST", "/sign-in/anonymous", {}));
  note("anonymous: delete", await guest("POST", "/delete-anonymous-user", {}));
  note("one-time token", await bob("GET", "/one-time-token/generate"));
  note("one-time token: made up", await nobody("POST", "/one-time-token/verify", { token: "nonsense" }));
  note("factor: wrong password", await bob("POST", "/two-factor/enable", { password: "wrong password" }));
  note("factor: nobody", await nobody("POST", "/two-factor/enable", { password }));
  note("factor: not on", await bob("POST", "/two-factor/get-totp-uri", { password }));
  note("factor: enable", await bob("POST", "/two-factor/enable", { password }));
  note("factor: wrong code", await bob("POST", "/two-factor/verify-totp", { code: "000000" }));
  note("factor: nobody's code", await nobody("POST", "/two-factor/verify-totp", { code: "000000" }));
  note("factor: no code", await bob("POST", "/two-factor/verify-totp", {}));
  note("factor: nobody's backup code", await nobody("POST", "/two-factor/verify-backup-code", { code: "nonsense" }));

  // The end.
  note("delete: wrong password", await bob("POST", "/delete-user", { password: "wrong password" }));
  note("delete: nobody", await nobody("POST", "/delete-user", { password }));
  note("delete", await bob("POST", "/delete-user", { password }));
  seen["delete: session ends"] = String(!(await session(bob)));
  note("sign out", await coded("POST", "/sign-out", {}));
  note("sign out: again", await coded("POST", "/sign-out", {}));
  seen["sign out: session ends"] = String(!(await session(coded)));
  note("ok", await nobody("GET", "/ok"));
  note("nowhere", await nobody("GET", "/nowhere"));
  note("other method", await nobody("GET", "/sign-in/email"));
  return seen;
}

const result = {};
for (const [who, server] of [["theirs", await theirs()], ["kit", ours()]]) {
  for (const [name, value] of Object.entries(await run(server))) (result[name] ??= {})[who] = value;
  server.close();
}
console.log(JSON.stringify(result, null, 1));
process.exit(0);
