// scripts: what runs inside the server, in Lua.
//
// Two scripts touch records and jobs, each for a batch: any number of calls in one partition. Script::records does to a
// record what core/transitions.cc says, Script::jobs to a job what core/job_transitions.cc says, on the server's clock.
// The value of a record and the fields of a job are described beside their decoders in values.h. A marker is a hash
// with the fields generation, replaces, tick and fence, and for each key that is not settled a field `open:` and its
// id: "LEASE EXPIRY" in milliseconds, with a lease of 0 for an indeterminate one.
#pragma once

#include <string>
#include <string_view>

namespace oncekey::redis {

enum class Script { records, jobs };

// KEYS: the marker, then a record or a job for each call, then what else the calls touch.
// ARGV: the generation and the largest tick that were seen of the marker, the time to go by or nothing, "1" to count
// the tick up, the channel to announce on, the number of calls; then for each call a letter and its arguments.
// Answers {now, tick, answer of each call...}; a call that the server refused to write for, or whose record cannot be
// read, has an error in place of its answer. {"LOST", generation, replaces, tick} when the marker is not of this
// generation or has a smaller tick, with nothing changed.
//
// Of records:
//   C times take_over identity                    claim: twice its fence, and one more after a takeover; or the record
//   F interest                                    find: the record, or nil
//   R owner lease                                 renew:    1 done, 0 lost
//   D owner status partial response               complete: the same
//   L owner                                       release:  the same
//   H owner finder                                hold:     the same
//   O release|complete|rerun status partial response        operate: 0 done, 1 absent, 2 live, 3 completed
// Fences and statuses are written as in a record's value; `owner` is a fence, and behind it the token of the claim if
// that is known. `identity` is what stands in the value from the fingerprint to the texts. `times` are retention and
// lease, each as eight bytes.
//
// Of jobs:
//   S fingerprint route key ordered delay retention message   stage: {1 staged or 0, the fingerprint that is there}
//   T route limit lease overdue     take: the number of jobs of the route that may be taken now or later, and for each
//                                   one taken its id, its fields and its message
//   E fence delivered|again|dead attempted status reason pause why_dead keep_message   end: 1 done, 0 lost
//   O retry|drop                    operate: 0 done, 1 absent, 2 taken, 3 over, 4 the message is gone
//   F                               find: {fields, message}, or nil
const std::string& text_of(Script script);

} // namespace oncekey::redis
