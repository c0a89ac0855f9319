/* Tests of several processes: fork N ranks that share a rendezvous store, and see how each ended.
 *
 *   static void body(const rank_env *env)       runs in each rank
 *   {
 *       RANK_OK(fl_net_open(...));
 *       RANK_CHECK(x == 3);
 *   }
 *   ...
 *   assert_int_equal(ranks_run(4, body, NULL, 10000), 0);
 *
 * The parent serves the store over ZeroMQ while it waits, and makes neither threads nor a net
 * before it forks. A rank that failed, hung or died is printed. */
#ifndef FL_TESTS_SUPPORT_RANKS_RANKS_H
#define FL_TESTS_SUPPORT_RANKS_RANKS_H

#include "autodp/net/net.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MAX = 16 };

typedef struct rank_env {
    int rank, size;
    const fl_kv *kv;      /* one thread at a time */
    void *zmq_context;    /* this rank's own */
    const char *endpoint; /* of the store */
    void *context;        /* what ranks_run was given */
} rank_env;

typedef void rank_body(const rank_env *env);

/* What is right for a rank to come to. */
typedef enum rank_end {
    RANK_ENDS,    /* returns from its body */
    RANK_KILLED,  /* dies of SIGKILL */
    RANK_STOPPED, /* stops itself (SIGSTOP) and is killed when all others are done */
} rank_end;

/* Fork `size` ranks and run `body` in each. Returns how many did not come to their right end
 * within timeout_ms; all are gone when it returns. ends [size], NULL: all RANK_ENDS. */
int ranks_run_ending(int size, rank_body *body, void *context, const rank_end *ends,
                     int64_t timeout_ms);

int ranks_run(int size, rank_body *body, void *context, int64_t timeout_ms);

/* In a rank: say what went wrong and end it. */
_Noreturn void rank_fail(const char *file, int line, const char *what, const char *detail);

#define RANK_CHECK(condition)                                                                      \
    ((condition) ? (void)0 : rank_fail(__FILE__, __LINE__, #condition, ""))
#define RANK_OK(expr)                                                                              \
    ((expr) == FL_OK ? (void)0 : rank_fail(__FILE__, __LINE__, #expr, fl_errmsg()))

/* How many descriptors and threads this process has. */
int count_descriptors(void);
int count_threads(void);

/* Wait until the process has at most n threads; false: it still has more after 10 s. A thread that
 * was joined is counted until the kernel has removed it. */
bool threads_fall_to(int n);

#endif
