package kitcmd

// RunAndClose is what Main does before it exits.
var RunAndClose = runAndClose
