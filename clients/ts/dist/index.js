export { Client, createClient } from "./client.js";
export { KitError } from "./error.js";
export { Upload } from "./upload.js";
export { Session } from "./session.js";
export { Presence } from "./presence.js";
