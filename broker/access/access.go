// Package access decides who reaches the broker: on which addresses its ways in listen, and whose secrets they accept.
//
// An [Endpoint] is a Unix socket or a loopback address, the same text for the server and for its clients. [Callers] are the
// clients, or the operators, of one way in.
package access
