/* Members of training groups over a stand-in for NCCL, as processes: they open one generation after
 * the other, and exchange and check data in each. */
#ifndef FL_TESTS_SUPPORT_RANKS_NCCL_MEMBERS_H
#define FL_TESTS_SUPPORT_RANKS_NCCL_MEMBERS_H

#include "autodp/nccl/nccl.h"

#include <stdbool.h>

enum { NCCL_GENERATIONS_MAX = 6 };

/* The victim is rank 1. */
typedef enum nccl_call_end {
    NCCL_CALL_WORKS,  /* no call goes wrong */
    NCCL_CALL_FAILS,  /* all leave, and all go on with a fresh parent */
    NCCL_CALL_DIES,   /* the victim dies in the call; the others go on without it */
    NCCL_CALL_STOPS,  /* the same, but it stands still */
    NCCL_CALL_IS_LATE /* the call only takes long */
} nccl_call_end;

typedef struct nccl_generation {
    const char *members; /* "013": the index of rank 3 is 2 */
    fl_comm_way way;
    bool breaks;        /* the victim's fault happens in its opening: all leave it */
    bool falls;         /* the victim dies in its first step: all leave it */
    bool third_falls;   /* the same of rank 3 */
    bool after_loss;    /* it is opened after one that the victim has left by dying */
    bool may_shrink;    /* as the others may have heard of that before they gave up the parent */
    nccl_call_end call; /* what becomes of the victim in a call of its opening */
} nccl_generation;

typedef struct nccl_script {
    const char *library, *options; /* of the victim's stand-in */
    nccl_generation of[NCCL_GENERATIONS_MAX];
} nccl_script;

/* Play it with four processes, of ranks 0 to 3; how many of them did not end as they should. */
int nccl_script_count_wrong(const nccl_script *s);

#endif
