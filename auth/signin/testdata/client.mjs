// The official better-auth client, unmodified, against a running kit:
//
//   node client.mjs http://localhost:8080 [all]
//
// It reads mail in the development mailbox and takes a minute, because sign-ins
// are limited. "all" also asks for what has to be switched on. Run it where node finds
// better-auth, or name the folder that has node_modules in KIT_TEST_BETTERAUTH.
import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const base = process.argv[2];
const all = process.argv[3] === "all";
const mailbox = `${base}/__kit/mailbox`;
const found = createRequire(path.join(process.env.KIT_TEST_BETTERAUTH ?? process.cwd(), "x.js"));
const load = (name) => import(pathToFileURL(found.resolve(name)).href);
const { createAuthClient } = await load("better-auth/client");
const plugins = await load("better-auth/client/plugins");

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// patient is a fetch that waits when it is told to.
async function patient(input, init) {
  const response = await fetch(input, init);
  if (response.status !== 429) return response;
  await sleep(1000 * Number(response.headers.get("retry-after")));
  return patient(input, init);
}

// A browser: a fetch that keeps cookies and says which page it is on.
function browser() {
  const jar = new Map();
  const fetchWithCookies = async (input, init = {}) => {
    const headers = new Headers(init.headers);
    headers.set("origin", new URL(base).origin);
    const cookies = [...jar].map(([name, value]) => `${name}=${value}`).join("; ");
    if (cookies) headers.set("cookie", cookies);
    const response = await patient(input, { ...init, headers, redirect: "manual" });
    for (const line of response.headers.getSetCookie()) {
      const [pair, ...attributes] = line.split(";");
      const at = pair.indexOf("=");
      const gone = attributes.some((a) => /^\s*max-age=(0|-\d+)$/i.test(a));
      if (gone) jar.delete(pair.slice(0, at));
      else jar.set(pair.slice(0, at), pair.slice(at + 1));
    }
    return response;
  };
  const client = createAuthClient({
    baseURL: `${base}/auth`,
    plugins: [
      plugins.magicLinkClient(),
      plugins.emailOTPClient(),
      plugins.twoFactorClient(),
      plugins.jwtClient(),
      plugins.usernameClient(),
      plugins.anonymousClient(),
      plugins.oneTimeTokenClient(),
      plugins.multiSessionClient(),
    ],
    fetchOptions: { customFetchImpl: fetchWithCookies },
  });
  return { client, jar, fetch: fetchWithCookies };
}

// good returns the data of a call that succeeded.
async function good(call) {
  const { data, error } = await call;
  assert.equal(error, null, JSON.stringify(error));
  return data;
}

// refused fails unless a call was refused with a code.
async function refused(call, code) {
  const { error } = await call;
  assert.equal(error?.code, code, JSON.stringify(error));
}

const seen = new Set();

// mail waits for the next mail to an address and returns its link and code.
async function mail(to) {
  for (let tries = 0; tries < 100; tries++) {
    const list = await (await fetch(mailbox)).text();
    const rows = [...list.matchAll(/<td>([^<]*)<\/td><td><a href="([^"]+)"/g)];
    const row = rows.find(([, address, link]) => address === to && !seen.has(link));
    if (row) {
      seen.add(row[2]);
      const page = await (await fetch(new URL(row[2], mailbox))).text();
      const text = page.match(/<pre>([\s\S]*?)<\/pre>/)[1].replaceAll("&amp;", "&").replaceAll("&#43;", "+");
      return { link: text.match(/https?:\/\/\S+/)?.[0], code: text.match(/^\d{6}$/m)?.[0] };
    }
    await sleep(100);
  }
  throw new Error(`no mail to ${to}`);
}

// totp is what an authenticator shows.
function totp(uri, at) {
  const secret = new URL(uri).searchParams.get("secret");
  const bits = [...secret].map((c) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(c).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const step = Buffer.alloc(8);
  step.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)));
  const mac = createHmac("sha1", key).update(step).digest();
  const offset = mac[19] & 15;
  return String((mac.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, "0");
}

async function step(name, run) {
  await run();
  console.log(`ok ${name}`);
}

const email = `ada-${randomUUID()}@example.com`;
const password = "correct horse battery";
const { client: ada, jar } = browser();

await step("sign up", async () => {
  const { user, token } = await good(ada.signUp.email({ name: "Ada", email, password }));
  assert.equal(user.email, email);
  assert.equal(user.emailVerified, false);
  assert.ok(token);
  await refused(ada.signUp.email({ name: "Eve", email, password }), "USER_ALREADY_EXISTS_USE_ANOTHER_EMAIL");
});

await step("verify an e-mail", async () => {
  const { link } = await mail(email);
  const token = new URL(link).searchParams.get("token");
  assert.match(await (await patient(link)).text(), /<button>/); // a scanner only sees a page
  assert.equal((await good(ada.getSession())).user.emailVerified, false);
  assert.equal((await good(ada.verifyEmail({ query: { token } }))).status, true);
  assert.equal((await good(ada.getSession())).user.emailVerified, true);
  assert.equal((await good(ada.verifyEmail({ query: { token } }))).status, true); // again: nothing changes
});

await step("sign out", async () => {
  assert.equal((await good(ada.signOut())).success, true);
  assert.equal(await good(ada.getSession()), null);
});

await step("sign in", async () => {
  await refused(ada.signIn.email({ email, password: "wrong password" }), "INVALID_EMAIL_OR_PASSWORD");
  const { user, redirect } = await good(ada.signIn.email({ email, password }));
  assert.equal(user.email, email);
  assert.equal(redirect, false);
  const { session } = await good(ada.getSession());
  assert.ok(session.expiresAt instanceof Date && session.expiresAt > new Date());
});

await step("list and revoke sessions", async () => {
  const { client: phone } = browser();
  await good(phone.signIn.email({ email, password }));
  const sessions = await good(ada.listSessions());
  assert.equal(sessions.length, 2);
  const own = (await good(ada.getSession())).session;
  const other = sessions.find((session) => session.token !== own.token);
  assert.equal((await good(ada.revokeSession({ token: other.token }))).status, true);
  assert.equal(await good(phone.getSession()), null);
  await good(phone.signIn.email({ email, password }));
  await good(ada.revokeOtherSessions());
  assert.equal(await good(phone.getSession()), null);
  assert.equal((await good(ada.listAccounts()))[0].providerId, "credential");
});

await step("access token and keys", async () => {
  const { token } = await good(ada.token());
  const { keys } = await (await fetch(`${base}/auth/jwks`)).json();
  const header = JSON.parse(Buffer.from(token.split(".")[0], "base64url"));
  assert.ok(keys.some((key) => key.kid === header.kid));
});

await step("update the user", async () => {
  await good(ada.updateUser({ name: "Ada Lovelace" }));
  assert.equal((await good(ada.getSession())).user.name, "Ada Lovelace");
});

await step("magic link", async () => {
  await good(ada.signOut());
  assert.equal((await good(ada.signIn.magicLink({ email, callbackURL: "/" }))).status, true);
  const { link } = await mail(email);
  assert.match(await (await patient(link)).text(), /<button>/);
  const token = new URL(link).searchParams.get("token");
  const first = await good(ada.magicLink.verify({ query: { token } }));
  assert.equal((await good(ada.getSession())).user.email, email);
  if (all) { // effects of React's StrictMode run twice
    assert.equal((await good(ada.magicLink.verify({ query: { token } }))).session.id, first.session.id);
    await refused(browser().client.magicLink.verify({ query: { token } }), "INVALID_TOKEN");
  }
});

await step("magic link by its button", async () => {
  const { client: phone, fetch: open } = browser();
  await good(ada.signIn.magicLink({ email, callbackURL: "/welcome" }));
  const { link } = await mail(email);
  const pressed = await open(link, { method: "POST" });
  assert.equal(pressed.status, 302);
  assert.equal(pressed.headers.get("location"), "/welcome");
  assert.equal((await good(phone.getSession())).user.email, email);
});

await step("code by e-mail", async () => {
  const { client: phone } = browser();
  await good(phone.emailOtp.sendVerificationOtp({ email, type: "sign-in" }));
  const { code } = await mail(email);
  const other = String((Number(code) + 1) % 1_000_000).padStart(6, "0");
  await refused(phone.signIn.emailOtp({ email, otp: other }), "INVALID_OTP");
  const { user } = await good(phone.signIn.emailOtp({ email, otp: code }));
  assert.equal(user.email, email);
});

await step("lost password", async () => {
  await good(ada.requestPasswordReset({ email, redirectTo: "/reset" }));
  const { link } = await mail(email);
  const led = await patient(link, { redirect: "manual" });
  const token = new URL(led.headers.get("location"), base).searchParams.get("token");
  await good(ada.resetPassword({ newPassword: "another password", token }));
  await refused(ada.signIn.email({ email, password }), "INVALID_EMAIL_OR_PASSWORD");
  await good(ada.signIn.email({ email, password: "another password" }));
  await good(ada.changePassword({ currentPassword: "another password", newPassword: password, revokeOtherSessions: true }));
});

await step("second factor", async () => {
  const { totpURI, backupCodes } = await good(ada.twoFactor.enable({ password }));
  assert.ok(backupCodes.length > 0);
  await refused(ada.twoFactor.verifyTotp({ code: totp(totpURI, Date.now() - 3_600_000) }), "INVALID_CODE");
  await good(ada.twoFactor.verifyTotp({ code: totp(totpURI, Date.now()) }));
  assert.equal((await good(ada.getSession())).user.twoFactorEnabled, true);
  await good(ada.signOut());
  assert.equal((await good(ada.signIn.email({ email, password }))).twoFactorRedirect, true);
  assert.equal(await good(ada.getSession()), null);
  await good(ada.twoFactor.verifyTotp({ code: totp(totpURI, Date.now() + 30_000) })); // each code is good once
  assert.equal((await good(ada.getSession())).user.email, email);
  await good(ada.signOut());
  await good(ada.signIn.email({ email, password }));
  await good(ada.twoFactor.verifyBackupCode({ code: backupCodes[0] }));
  await good(ada.twoFactor.disable({ password }));
});

await step("delete the account", async () => {
  assert.equal((await good(ada.deleteUser({ password }))).success, true);
  assert.equal(await good(ada.getSession()), null);
  assert.ok(![...jar.keys()].some((name) => name.endsWith("kit_session")));
});

if (all) {
  await step("user name", async () => {
    const { client: bob } = browser();
    const username = `bob_${Date.now()}`;
    assert.equal((await good(bob.isUsernameAvailable({ username }))).available, true);
    await good(bob.signUp.email({ name: "Bob", email: `${username}@example.com`, password, username }));
    assert.equal((await good(bob.isUsernameAvailable({ username }))).available, false);
    await good(bob.signOut());
    await good(bob.signIn.username({ username, password }));
    assert.equal((await good(bob.getSession())).user.username, username);
  });

  await step("anonymous, then signed up", async () => {
    const { client: guest } = browser();
    const { user } = await good(guest.signIn.anonymous());
    await refused(guest.signIn.anonymous(), "ANONYMOUS_USERS_CANNOT_SIGN_IN_AGAIN_ANONYMOUSLY");
    await good(guest.signUp.email({ name: "Guest", email: `guest-${randomUUID()}@example.com`, password }));
    const known = (await good(guest.getSession())).user;
    assert.equal(known.id, user.id);
    assert.equal(known.isAnonymous, false);
  });

  await step("one-time token", async () => {
    const { client: here } = browser();
    const { client: there } = browser();
    const { user } = await good(here.signUp.email({ name: "Eve", email: `eve-${randomUUID()}@example.com`, password }));
    const { token } = await good(here.oneTimeToken.generate());
    assert.equal((await good(there.oneTimeToken.verify({ token }))).user.id, user.id);
    assert.equal((await good(there.getSession())).user.id, user.id);
  });

  await step("two users in one browser", async () => {
    const { client: both } = browser();
    const first = await good(both.signUp.email({ name: "One", email: `one-${randomUUID()}@example.com`, password }));
    const second = await good(both.signUp.email({ name: "Two", email: `two-${randomUUID()}@example.com`, password }));
    assert.equal((await good(both.getSession())).user.id, second.user.id);
    const sessions = await good(both.multiSession.listDeviceSessions());
    const { session } = sessions.find(({ user }) => user.id === first.user.id);
    await good(both.multiSession.setActive({ sessionToken: session.token }));
    assert.equal((await good(both.getSession())).user.id, first.user.id);
    await good(both.multiSession.revoke({ sessionToken: session.token }));
    assert.equal((await good(both.getSession())).user.id, second.user.id);
  });
}

console.log("done");
