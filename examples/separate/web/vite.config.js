import { fileURLToPath } from "node:url"

// The typed client is compiled from the repository. An application installs the
// package instead and needs no configuration.
const client = fileURLToPath(new URL("../../../clients/ts/src", import.meta.url))

export default {
  resolve: { alias: { "@kitbackend/client": client + "/index.ts" } },
  server: { fs: { allow: [".", client] } },
}
