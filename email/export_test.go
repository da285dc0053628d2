package email

// Sign is what an attempt does to a message.
var Sign = sign

// Redirectable is what a click may lead to.
var Redirectable = redirectable
