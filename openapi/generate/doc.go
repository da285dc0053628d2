// Package generate holds that generators of others make clients of the golden
// document that compile. It is a module of its own, so that the kit does not
// depend on them.
package generate

import _ "github.com/oapi-codegen/runtime" // what generated clients need
