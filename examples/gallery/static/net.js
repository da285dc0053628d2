// Calls to the kit as the user who signed in.
let token = ""
let name = ""

export const signIn = async (user) => {
  const response = await fetch("/__kit/dev-login?user=" + encodeURIComponent(user), { credentials: "omit" })
  if (!response.ok) throw new Error("That name cannot sign in here.")
  token = (await response.json()).accessToken
  name = user
}

// call sends JSON and returns what comes back; a refusal is thrown.
export const call = async (method, path, body, again = true) => {
  const headers = { Authorization: "Bearer " + token }
  if (body !== undefined) headers["Content-Type"] = "application/json"
  const response = await fetch(path, { method, headers, credentials: "omit", body: body === undefined ? undefined : JSON.stringify(body) })
  if (response.status === 401 && again) { // the token of a page left open
    await signIn(name)
    return call(method, path, body, false)
  }
  if (response.status === 204) return null
  const value = await response.json().catch(() => ({}))
  if (!response.ok) throw Object.assign(new Error(value.error?.message ?? "Something went wrong."), { status: response.status, code: value.error?.code })
  return value
}
