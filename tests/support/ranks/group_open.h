/* Groups of the ranks of a test, over the transport that FL_TEST_TRANSPORT names. */
#ifndef FL_TESTS_SUPPORT_RANKS_GROUP_OPEN_H
#define FL_TESTS_SUPPORT_RANKS_GROUP_OPEN_H

#include "autodp/group/group.h"
#include "support/ranks/group_data.h"
#include "support/ranks/ranks.h"

enum { GROUP_MS = 40000, GROUP_RANKS = 5 };

/* A deadline that only a defect reaches. */
int64_t group_soon(void);

/* The way through host memory; set before the ranks are forked. */
typedef struct group_ways {
    bool sockets_only;
    bool hosts; /* two members on each but the last, which may have one */
} group_ways;
extern group_ways group_way;

/* How many ways there are to go through host memory; NCCL has one. */
int group_n_ways(int through_host);

/* Run `body` in 1 to GROUP_RANKS ranks; all must succeed. */
void group_for_sizes(rank_body *body, void *context);

/* In a rank: its group. */
fl_group *group_open(const rank_env *env, uint32_t generation);

/* In a rank: a bucket of its data, fp32 [n]. */
fl_bucket *group_bucket(fl_group *group, uint32_t id, const int *owners, int n_owners,
                        const group_data *data, int64_t n);

/* Nothing was allocated since; NCCL's stand-in and its device take memory for each operation. */
void group_check_allocations(uint64_t before);

/* Exact in float for every sum of five of them. */
float group_value(int rank, int64_t i);

#endif
