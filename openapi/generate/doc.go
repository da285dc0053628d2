// Package generate tests that third-party generators create clients of the golden document that
// compile. It is a separate module, so that the kit does not depend on them.
package generate

import _ "github.com/oapi-codegen/runtime" // required by generated clients
