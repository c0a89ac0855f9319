/* The message group of the ranks of a test. */
#ifndef FL_TESTS_SUPPORT_RANKS_MESSAGES_H
#define FL_TESTS_SUPPORT_RANKS_MESSAGES_H

#include "autodp/message.h"
#include "support/ranks/ranks.h"

/* Open it over the transport that the test runs on, with all ranks, or end this rank. The caller
 * closes it. */
fl_message_group *rank_messages(const rank_env *env, int64_t open_ms, int64_t wait_ms);

#endif
