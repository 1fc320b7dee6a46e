// Package operation is the lifecycle of Agent Operations V1: submitted work, from its request to its one outcome.
//
// # What always holds
//
// The database is the only authority. A row of table operation is the work; no queue, lock or memory knows more, and
// whatever is lost with the process is found again in the rows.
//
// One request, one operation. A client's request ID is unique in the table, and the insertion that loses against an equal ID
// reads the winner: the same request returns the same operation, another one is refused. Which request is the same is said
// by the digest of what was submitted, taken before any provider is asked, so that neither what a provider answers nor
// what policy says today can change the answer to a replay.
//
// What is stored is what happens. The request, the plan and the plan's digest are stored in the transaction that creates the
// operation and are never written again. A person approves the digest; execution reads the plan back, and performs it only
// if it has that digest.
//
// Every change counts. A change of an operation is one row of operation_event and one step of the revision, made in one
// transaction by comparing and setting the revision. These are all the moves:
//
//	(new)     -> pending    policy asks a person
//	(new)     -> approved   policy lets it run unattended
//	(new)     -> denied     policy denies it: no provider has heard of it
//	pending   -> approved, denied     an operator decided
//	pending   -> expired              nobody did
//	pending   -> canceled             its requester withdrew it
//	approved  -> canceled             the same, before it was dispatched
//	approved  -> executing            it is dispatched
//	approved  -> failed               its stored plan cannot be used: it was not dispatched
//	executing -> executing            it is dispatched again after a crash, being safe to repeat
//	executing -> succeeded, failed
//
// Dispatched is committed before the call leaves. State executing means that the provider may have been called; any earlier
// state, that it was not. So after a crash
//
//   - what is approved runs;
//   - what is executing and is safe to repeat ([provider.Read], [provider.Keyed]) runs again, and a change that is refused
//     then is looked up, since the refusal says nothing about the earlier call;
//   - any other that is executing is looked up ([provider.Reconciler]) and never called again;
//   - what cannot be proven ends as failed with [CodeOutcomeUnknown].
//
// While the process lives, a change whose outcome is unknown is looked up too and never repeated. Failed with another code
// means that nothing took effect, unless a provider's message says what did ([provider.Failed]).
//
// Nothing waits for a provider but its own execution. Submitting asks only Resolve, within a time limit; canceling asks
// nobody; a call that hangs holds one of the places for executions and nothing else: no transaction, no lock.
//
// What a provider says is made safe before it is stored, and cannot keep an operation from ending: it is cut, never refused.
//
// # Where to look
//
// operation.go has the types, submit.go how work comes in, execute.go what becomes of it, recover.go what a new process
// takes up, service.go how it is read and canceled, store.go how it is kept.
package operation
