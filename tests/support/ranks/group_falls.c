#include "support/ranks/group_falls.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/group_data.h"
#include "support/ranks/transport.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

fl_status fall_open_group(const rank_env *env, const fl_kv *kv, uint32_t generation,
                          int64_t open_ms, int64_t wait_ms, fl_group **out)
{
    const fall_scenario *s = env->context;
    const fl_group_options options = {.transport = test_net_transport(),
                                      .device = the_device(),
                                      .generation = generation,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = kv,
                                      .open_timeout_ms = open_ms,
                                      .wait_timeout_ms = wait_ms,
                                      .sockets_only = s != NULL && s->sockets_only,
                                      .backend = test_backend(),
                                      .every_pair = test_backend() != NULL};
    return fl_group_open(&options, out);
}

_Noreturn void fall_here(const rank_env *env)
{
    const fall_scenario *s = env->context;
    raise(s->fault == FALL_KILL ? SIGKILL : SIGSTOP);
    pause();
    abort();
}

bool fall_is_victim(const rank_env *env)
{
    return env->rank == FALL_VICTIM;
}

void fall_go_on_without_victim(const rank_env *env)
{
    rank_env survivor = *env;
    survivor.rank = env->rank > FALL_VICTIM ? env->rank - 1 : env->rank;
    survivor.size = FALL_RANKS - 1;
    fl_group *group = NULL;
    RANK_OK(fall_open_group(&survivor, env->kv, 2, FALL_PATIENCE_MS, FALL_PATIENCE_MS, &group));
    double value = 1.0;
    RANK_OK(fl_group_all_reduce(group, &value, 1, fl_deadline_us(FALL_PATIENCE_MS)));
    RANK_CHECK(value == FALL_RANKS - 1);
    fl_group_close(&group);
}

void fall_say(const rank_env *env, const char *what)
{
    char key[32];
    snprintf(key, sizeof key, "%s/%d", what, env->rank);
    RANK_OK(env->kv->set(env->kv->self, key, fl_deadline_us(FALL_PATIENCE_MS), "", 1));
}

void fall_await_all(const rank_env *env, const char *what, bool victim)
{
    char key[32];
    for (int rank = 0; rank < env->size; rank++) {
        void *data = NULL;
        size_t size_bytes = 0;
        if (rank == FALL_VICTIM && !victim) {
            continue;
        }
        snprintf(key, sizeof key, "%s/%d", what, rank);
        RANK_OK(
            env->kv->get(env->kv->self, key, fl_deadline_us(FALL_PATIENCE_MS), &data, &size_bytes));
        fl_free(data);
    }
}
