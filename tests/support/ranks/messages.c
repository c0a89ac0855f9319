#include "support/ranks/messages.h"

#include "support/ranks/transport.h"

fl_message_group *rank_messages(const rank_env *env, int64_t open_ms, int64_t wait_ms)
{
    const fl_message_options options = {.transport = test_net_transport(),
                                        .membership = 1,
                                        .rank = env->rank,
                                        .size = env->size,
                                        .kv = env->kv,
                                        .open_timeout_ms = open_ms,
                                        .wait_timeout_ms = wait_ms};
    fl_message_group *group = NULL;
    RANK_OK(fl_message_open(&options, &group));
    return group;
}
