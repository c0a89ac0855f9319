/* Members of a training group of which one dies, stops, or does not come, over the transport that
 * FL_TEST_TRANSPORT names. */
#ifndef FL_TESTS_SUPPORT_RANKS_GROUP_FALLS_H
#define FL_TESTS_SUPPORT_RANKS_GROUP_FALLS_H

#include "autodp/group/group.h"
#include "support/ranks/ranks.h"

enum {
    FALL_RANKS = 3,
    FALL_VICTIM = 1,
    FALL_SHORT_MS = 2000,
    FALL_PATIENCE_MS = 60000,
    FALL_BEYOND_MS = 600000, /* more than the time that a test is given */
};

typedef enum fall_fault { FALL_KILL, FALL_STOP } fall_fault;
typedef enum fall_notice { FALL_BY_ITSELF, FALL_BY_ABORT } fall_notice;

/* The context of the ranks. */
typedef struct fall_scenario {
    const char *operation;
    /* Returns with the first failure. The victim calls `fall_here` in the middle of it. */
    fl_status (*run)(const rank_env *env, fl_group *group);
    fall_fault fault;
    fall_notice notice;
    bool sockets_only;
} fall_scenario;

/* This rank's group; kv may be another client of the store than its own. */
fl_status fall_open_group(const rank_env *env, const fl_kv *kv, uint32_t generation,
                          int64_t open_ms, int64_t wait_ms, fl_group **out);

bool fall_is_victim(const rank_env *env);

/* This process dies or stops, as its scenario says. */
_Noreturn void fall_here(const rank_env *env);

/* The others form a group of their own, which works. */
void fall_go_on_without_victim(const rank_env *env);

/* Say something to the other ranks; wait until all have said it, or all but the victim. */
void fall_say(const rank_env *env, const char *what);
void fall_await_all(const rank_env *env, const char *what, bool victim);

#endif
