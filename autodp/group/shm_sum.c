/* The sum over all members of one host: each writes its values into a row of its own, and all read
 * all rows. Each member has two rows: a member that writes the row of round r has finished round
 * r - 1, which all members had reached, so all of them have read the row of round r - 2. */
#include "autodp/group/shm_sum.h"

#include <string.h>

enum { N_ROWS = 2 };

typedef struct row {
    int64_t n;
    double values[FL_GROUP_ALL_REDUCE_MAX];
} row;

/* In the segment's extra memory. */
typedef struct table {
    fl_entry rounds; /* only its count is used: the rounds that its owner has entered */
    row rows[N_ROWS];
} table;

size_t fl_shm_sum_bytes(void)
{
    return sizeof(table);
}

/* All members must have arrived before the first row is added: values are added in the order of the
 * members. */
static fl_status meet(const fl_shm_sum *s, int n, int64_t deadline_us)
{
    for (int member = 0; member < s->size; member++) {
        const table *theirs = fl_shm_segment_extra(s->segment, member);
        const fl_look look = {&theirs->rounds, member, 0};
        if (member != s->index) {
            FL_TRY(
                fl_shm_segment_wait(s->segment, &look, s->round + 1, FL_WAIT_AWAKE, deadline_us));
        }
        int64_t given = theirs->rows[s->round % N_ROWS].n;
        if (given != n) {
            return fl_fail(FL_EINTERNAL, "member %d gave %lld values, not %d", member,
                           (long long)given, n);
        }
    }
    return FL_OK;
}

fl_status fl_shm_sum_run(fl_shm_sum *s, double *values, int n, int64_t deadline_us)
{
    table *mine = fl_shm_segment_extra(s->segment, s->index);
    row *given = &mine->rows[s->round % N_ROWS];
    given->n = n;
    memcpy(given->values, values, (size_t)n * sizeof *values);
    fl_entry_ring(&mine->rounds);
    FL_TRY(meet(s, n, deadline_us));
    memset(values, 0, (size_t)n * sizeof *values);
    for (int member = 0; member < s->size; member++) {
        const table *theirs = fl_shm_segment_extra(s->segment, member);
        for (int i = 0; i < n; i++) {
            values[i] += theirs->rows[s->round % N_ROWS].values[i];
        }
    }
    s->round++;
    return FL_OK;
}
