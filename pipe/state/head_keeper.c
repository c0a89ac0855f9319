#include "pipe/state/head_keeper.h"

int fl_head_keeper(const fl_plan *plan, int n_head, int layer)
{
    int ranks[FL_MAX_WORKERS], n = 0;
    for (int rank = 0; rank < n_head && rank < plan->n_workers; rank++) {
        if (!plan->departed[rank]) {
            ranks[n++] = rank;
        }
    }
    return n == 0 ? -1 : ranks[layer % n];
}
