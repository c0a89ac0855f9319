/* Splits of the parent. A split needs all ranks, and gives each of them at most one communicator,
 * so the members first tell each other their lanes, and all compute the same rounds: lanes without
 * a common member are split off together.
 *
 *     0-1, 2-3, 1-2, 0-2 (messages), {0, 2}, {1, 3} (buckets)
 *     round 0: 0-1, 2-3    round 1: 1-2    round 2: {0, 2}, {1, 3}    ...
 */
#include "autodp/nccl/nccl_group.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <string.h>

/* A lane as its first member tells it: how many members, what it carries, which lane of that kind,
 * and the members. */
enum { N_MEMBERS, KIND, ID, MEMBERS };

typedef struct lane_list {
    double *number; /* [n] records of all lanes, those of the first member first */
    int64_t n;
    double *n_before; /* [size] where each member's records begin, counted in numbers */
} lane_list;

static bool is_split_off(const nccl_lane *lane)
{
    return lane->kind != NCCL_PARENT && !lane->begun;
}

/* ---- telling ---- */

static int64_t count_own(const nccl_group *g)
{
    int64_t n = 0;
    for (const nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        n += is_split_off(lane) && lane->my_place == 0 ? MEMBERS + lane->n_members : 0;
    }
    return n;
}

static void put_own(const nccl_group *g, double *number)
{
    for (const nccl_lane *lane = g->lanes; lane != NULL; lane = lane->next) {
        if (is_split_off(lane) && lane->my_place == 0) {
            number[N_MEMBERS] = lane->n_members;
            number[KIND] = lane->kind;
            number[ID] = lane->id;
            for (int i = 0; i < lane->n_members; i++) {
                number[MEMBERS + i] = lane->members[i];
            }
            number += MEMBERS + lane->n_members;
        }
    }
}

fl_status fl__nccl_sum(nccl_group *g, double *number, int64_t n, int64_t deadline_us)
{
    for (int64_t at = 0; at < n; at += FL_GROUP_ALL_REDUCE_MAX) {
        int64_t left = n - at;
        int here = left < FL_GROUP_ALL_REDUCE_MAX ? (int)left : FL_GROUP_ALL_REDUCE_MAX;
        FL_TRY(fl__nccl_result(g, fl_group_all_reduce(g->host, number + at, here, deadline_us)));
    }
    return FL_OK;
}

static fl_status exchange_lists(nccl_group *g, lane_list *list, int64_t deadline_us)
{
    size_t size = (size_t)g->base.size;
    FL_TRY(fl_alloc_array(size, sizeof *list->n_before, (void **)&list->n_before));
    list->n_before[g->base.index] = (double)count_own(g);
    FL_TRY(fl__nccl_sum(g, list->n_before, g->base.size, deadline_us));
    for (size_t i = 0; i < size; i++) {
        int64_t its = (int64_t)list->n_before[i];
        list->n_before[i] = (double)list->n;
        list->n += its;
    }
    if (list->n == 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_array((size_t)list->n, sizeof *list->number, (void **)&list->number));
    put_own(g, list->number + (int64_t)list->n_before[g->base.index]);
    return fl__nccl_sum(g, list->number, list->n, deadline_us);
}

/* ---- rounds ---- */

static int member_at(const double *record, int i)
{
    return (int)record[MEMBERS + i];
}

static int64_t record_size(const double *record)
{
    return MEMBERS + (int64_t)record[N_MEMBERS];
}

/* The first round in which none of its members has another lane. A member's rounds fill up in
 * order, but with gaps: used [n_rounds][size]. */
static int find_round(const double *record, const bool *used, int size)
{
    for (int round = 0;; round++) {
        bool free = true;
        for (int i = 0; i < (int)record[N_MEMBERS]; i++) {
            free = free && !used[(ptrdiff_t)round * size + member_at(record, i)];
        }
        if (free) {
            return round;
        }
    }
}

static bool is_of_record(const nccl_lane *lane, const double *record)
{
    bool same = is_split_off(lane) && lane->n_members == (int)record[N_MEMBERS] &&
                lane->kind == (nccl_lane_kind)record[KIND] && lane->id == (uint32_t)record[ID];
    for (int i = 0; same && i < lane->n_members; i++) {
        same = lane->members[i] == member_at(record, i);
    }
    return same;
}

static nccl_lane *find_lane(const nccl_group *g, const double *record)
{
    nccl_lane *lane = g->lanes;
    while (lane != NULL && !is_of_record(lane, record)) {
        lane = lane->next;
    }
    return lane;
}

static fl_nccl_result begin_split(nccl_job *job)
{
    nccl_round *round = job->owner;
    const nccl_lane *parent = job->lane;
    nccl_lane *lane = round->lane;
    fl_nccl_config config = FL_NCCL_CONFIG_INIT;
    /* Lanes of one round differ in their first members. */
    int color = lane == NULL ? FL_NCCL_NO_COLOR : lane->members[0];
    int key = lane == NULL ? 0 : lane->my_place;
    return parent->group->nccl.CommSplit(parent->comm, color, key,
                                         lane == NULL ? &round->none : &lane->comm, &config);
}

static const char *kind_text(const double *record)
{
    nccl_lane_kind kind = (nccl_lane_kind)record[KIND];
    return kind == NCCL_BUCKETS ? "bucket" : kind == NCCL_STATE ? "state lane" : "channel";
}

static fl_status place_record(nccl_group *g, const double *record, bool *used, int *n_rounds)
{
    int size = g->base.size, at = find_round(record, used, size);
    bool mine = false;
    for (int i = 0; i < (int)record[N_MEMBERS]; i++) {
        used[(ptrdiff_t)at * size + member_at(record, i)] = true;
        mine = mine || member_at(record, i) == g->base.index;
    }
    *n_rounds = at >= *n_rounds ? at + 1 : *n_rounds;
    g->rounds[at].lane = mine ? find_lane(g, record) : g->rounds[at].lane;
    return mine && g->rounds[at].lane == NULL
               ? fl_fail(FL_EINVAL, "member %d opened %s %u, which this member has not",
                         member_at(record, 0), kind_text(record), (uint32_t)record[ID])
               : FL_OK;
}

/* rounds: at most one for each record. */
static fl_status plan_rounds(nccl_group *g, const lane_list *list, int *n_rounds)
{
    bool *used = NULL;
    size_t most = 0;
    for (int64_t at = 0; at < list->n; at += record_size(list->number + at)) {
        most++;
    }
    FL_TRY(fl_alloc_array(most + 1, sizeof *g->rounds, (void **)&g->rounds));
    FL_TRY(fl_alloc_array((most + 1) * (size_t)g->base.size, sizeof *used, (void **)&used));
    fl_status status = FL_OK;
    for (int64_t at = 0; status == FL_OK && at < list->n; at += record_size(list->number + at)) {
        status = place_record(g, list->number + at, used, n_rounds);
    }
    fl_free(used);
    return status;
}

static fl_status make_splits(nccl_group *g, int n_rounds, int64_t deadline_us)
{
    for (int i = 0; i < n_rounds; i++) {
        nccl_round *round = &g->rounds[i];
        round->job = (nccl_job){.lane = g->parent,
                                .call = "ncclCommSplit",
                                .opens = FL_FLIGHT_COMM_SPLIT,
                                .begin = begin_split,
                                .owner = round};
        FL_TRY(fl__nccl_job_queue(&round->job, g->open_timeout_ms));
    }
    if (n_rounds > 0) {
        FL_TRY(fl__nccl_job_done(&g->rounds[n_rounds - 1].job, deadline_us));
    }
    /* Operations begin after the last split: a device that waits in one must not hold up another
     * member's split. */
    for (int i = 0; i < n_rounds; i++) {
        FL_TRY(g->rounds[i].lane == NULL ? FL_OK : fl__nccl_lane_adopt(g->rounds[i].lane));
    }
    return FL_OK;
}

fl_status fl__nccl_split_lanes(nccl_group *g, int64_t *begun_us, int64_t deadline_us)
{
    lane_list list = {.n = 0};
    int n_rounds = 0;
    fl_status status = exchange_lists(g, &list, deadline_us);
    *begun_us = fl_now_us();
    status = status == FL_OK ? plan_rounds(g, &list, &n_rounds) : status;
    fl_free(list.number);
    fl_free(list.n_before);
    return status == FL_OK ? make_splits(g, n_rounds, deadline_us) : status;
}
