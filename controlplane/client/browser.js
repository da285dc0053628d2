// The customer's side of a control-plane connection in a page of the issuer's
// origin. The private key cannot be extracted: keep the CryptoKeyPair in IndexedDB.
const text = new TextEncoder()
const base64url = (bytes) =>
	btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")
const hash = async (data) => base64url(await crypto.subtle.digest("SHA-256", data))

// generateKey returns a CryptoKeyPair whose private half never leaves the browser.
export const generateKey = () => crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"])

// publicJWK returns the public key as the service stores it.
export async function publicJWK(keys) {
	const { kty, crv, x } = await crypto.subtle.exportKey("jwk", keys.publicKey)
	return { kty, crv, x }
}

const name = async (data) => (await hash(text.encode(data))).slice(0, 22)
const keyId = async ({ x }) => "k_" + (await name(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`))

// connectionId returns the id of the connection that began with a key in an environment.
export const connectionId = async (environment, jwk) =>
	"c_" + (await name(`kit/controlplane/connection/v1\n${environment}\n${await keyId(jwk)}`))

// credential returns the token of one call; it is valid once, for this request only.
export async function credential({ address, environment, issuer, connection, keys }, method, url, body, scopes) {
	const now = Math.floor(Date.now() / 1000)
	const header = { alg: "EdDSA", kid: await keyId(await publicJWK(keys)), typ: "kit-cp+jwt" }
	const claims = {
		iss: issuer, aud: address, sub: connection, env: environment, iat: now - 5, exp: now + 60,
		jti: base64url(crypto.getRandomValues(new Uint8Array(16))), scope: scopes.join(" "),
		htm: method, htu: url.origin + url.pathname, bdh: await hash(text.encode(body)),
	}
	const input = [header, claims].map((part) => base64url(text.encode(JSON.stringify(part)))).join(".")
	return input + "." + base64url(await crypto.subtle.sign("Ed25519", keys.privateKey, text.encode(input)))
}

// call sends one request to the service with a new credential.
export async function call(connection, method, path, { body = "", scopes = [] } = {}) {
	const url = new URL(path, connection.address)
	const authorization = "Bearer " + (await credential(connection, method, url, body, scopes))
	const headers = { authorization, ...(body && { "content-type": "application/json" }) }
	return fetch(url, { method, headers, body: body || undefined })
}
