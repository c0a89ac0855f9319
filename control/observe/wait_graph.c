#include "control/observe/wait_graph.h"

#include "autodp/group/group.h"
#include "nn/model.h"

#include <stdio.h>
#include <string.h>

enum { NAMED = 8, GROUPS = 6 }; /* workers named in a list, waiting groups named in a line */

/* Workers that others wait for. */
typedef struct crowd {
    bool in[FL_MAX_WORKERS];
    int n;
    bool absent; /* they have not arrived at the operation */
} crowd;

typedef struct scene {
    const fl_wait_graph_worker *workers;
    int n;
    const fl_plan *plan;
    const fl_model *model;
    int lost;
    int64_t now_ns;
} scene;

/* ---- text that grows ---- */

typedef struct wait_line {
    char *text;
    size_t size, n;
} wait_line;

static void grow(wait_line *l, int n)
{
    size_t left = l->size - l->n - 1;
    l->n += n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
}

/* Append as printf does; what does not fit is left out. */
#define ADD(l, ...) grow(l, snprintf((l)->text + (l)->n, (l)->size - (l)->n, __VA_ARGS__))

/* "worker 1", "workers 0, 2 and 3", "workers 0, 1, 2 and 12 more". */
static void add_workers(wait_line *l, const bool *in, int n, int count)
{
    int n_named = 0;
    ADD(l, count == 1 ? "worker" : "workers");
    for (int i = 0; i < n && n_named < NAMED; i++) {
        if (in[i]) {
            bool last = n_named + 1 == count;
            ADD(l, "%s %d", n_named == 0 ? "" : last ? " and" : ",", i);
            n_named++;
        }
    }
    if (count > n_named) {
        ADD(l, " and %d more", count - n_named);
    }
}

/* ---- operations ---- */

static bool comes_in(fl_flight_kind kind)
{
    return kind == FL_FLIGHT_RECEIVE || kind == FL_FLIGHT_RECEIVE_GRAD ||
           kind == FL_FLIGHT_STATE_IN || kind == FL_FLIGHT_RECEIVE_COMMAND;
}

bool fl_wait_graph_opens(fl_flight_kind kind)
{
    return kind >= FL_FLIGHT_COMM_ID && kind <= FL_FLIGHT_COMM_CONNECT;
}

static const char *direction(fl_flight_kind kind)
{
    return fl_wait_graph_opens(kind) ? "with" : comes_in(kind) ? "from" : "to";
}

static bool has_layer(fl_flight_kind kind)
{
    return kind == FL_FLIGHT_FORWARD || kind == FL_FLIGHT_BACKWARD;
}

static bool has_bucket(fl_flight_kind kind)
{
    return kind == FL_FLIGHT_REDUCE || kind == FL_FLIGHT_REDUCE_WAIT;
}

/* "layer 6, blocks.3.mlp"; the kind of a layer without a name of its own. */
static void add_layer(wait_line *l, const scene *s, int layer)
{
    ADD(l, " of layer %d", layer);
    if (s->model != NULL && layer >= 0 && layer < fl_model_n_layers(s->model)) {
        ADD(l, ", %s",
            fl_model_layer_is_named(s->model, layer) ? fl_model_layer_name(s->model, layer)
                                                     : fl_model_layer_kind(s->model, layer));
    }
}

static void add_operation(wait_line *l, const scene *s, const fl_flight_entry *e,
                          const fl_flight_entry *phase)
{
    char bucket[FL_BUCKET_TEXT];
    bool in_step = phase->kind == FL_FLIGHT_STEP || phase->kind == FL_FLIGHT_NONE;
    ADD(l, "%s", fl_flight_text(e->kind));
    if (e->peer >= 0) {
        ADD(l, " %s worker %d", direction(e->kind), e->peer);
    }
    if (has_layer(e->kind)) {
        add_layer(l, s, e->item);
    }
    if (in_step || e->kind == phase->kind) {
        ADD(l, " (%sstep %lld", e->kind == FL_FLIGHT_STEP || in_step ? "" : "before ",
            (long long)e->step);
    } else {
        ADD(l, " (%s", fl_flight_text(phase->kind));
    }
    if (e->micro_batch >= 0) {
        ADD(l, ", micro-batch %d", e->micro_batch);
    }
    if (has_bucket(e->kind)) {
        ADD(l, ", %s", fl_bucket_text((uint32_t)e->item, bucket));
    }
    if (e->bytes > 0) {
        ADD(l, ", %lld bytes", (long long)e->bytes);
    }
    ADD(l, ")");
}

/* ---- awaited workers ---- */

/* Whether `have`, the newest of its kind, is `want` or later. Buckets are reduced in the order of
 * their numbers; each generation counts sums from 0. */
static bool has_come(const fl_flight_entry *have, const fl_flight_entry *want)
{
    if (have->kind == FL_FLIGHT_NONE) {
        return false;
    }
    if (has_bucket(want->kind)) {
        return have->step != want->step ? have->step > want->step : have->item >= want->item;
    }
    if (want->kind == FL_FLIGHT_SUM && have->generation != want->generation) {
        return have->generation > want->generation;
    }
    return have->item >= want->item;
}

static bool is_member(const scene *s, int me, int other, fl_flight_kind kind)
{
    if (kind == FL_FLIGHT_GATHER) {
        return !s->plan->departed[other];
    }
    fl_place mine = fl_plan_place(s->plan, me), place = fl_plan_place(s->plan, other);
    return place.active && (kind == FL_FLIGHT_SUM || place.stage == mine.stage);
}

static const fl_flight_entry *newest(const fl_wait_graph_worker *w, fl_flight_kind kind)
{
    return kind == FL_FLIGHT_SUM ? &w->sum : kind == FL_FLIGHT_GATHER ? &w->gather : &w->reduce;
}

/* The members that have not arrived at a collective. If all have arrived, only the lost worker can
 * be holding it up. */
static void awaited_in_collective(const scene *s, int me, crowd *out)
{
    const fl_flight_entry *at = &s->workers[me].at;
    out->absent = true;
    for (int i = 0; i < s->n; i++) {
        out->in[i] = i != me && is_member(s, me, i, at->kind) &&
                     !has_come(newest(&s->workers[i], at->kind), at);
        out->n += out->in[i];
    }
    bool lost_is_in = s->lost >= 0 && s->lost != me && is_member(s, me, s->lost, at->kind);
    if (out->n == 0 && lost_is_in) {
        out->in[s->lost] = true;
        out->n = 1;
        out->absent = false;
    }
}

static void awaited(const scene *s, int me, crowd *out)
{
    const fl_flight_entry *at = &s->workers[me].at;
    memset(out, 0, sizeof *out);
    switch (at->kind) {
    case FL_FLIGHT_NONE:
        break;
    case FL_FLIGHT_SUM:
    case FL_FLIGHT_GATHER:
    case FL_FLIGHT_REDUCE_WAIT:
        awaited_in_collective(s, me, out);
        break;
    default:
        if (at->peer >= 0 && at->peer < s->n) {
            out->in[at->peer] = true;
            out->n = 1;
        }
    }
}

/* Workers in the same operation wait for the same workers. Standby workers do not count steps, but
 * take part in operations of the message group. */
static bool same_wait(const fl_flight_entry *a, const fl_flight_entry *b)
{
    bool of_messages = a->kind == FL_FLIGHT_GATHER || a->kind == FL_FLIGHT_RECEIVE_COMMAND;
    return a->kind == b->kind && a->item == b->item && a->peer == b->peer &&
           a->micro_batch == b->micro_batch &&
           (of_messages || (a->step == b->step && a->generation == b->generation));
}

/* ---- the line ---- */

static void separate(wait_line *l)
{
    if (l->n > 0) {
        ADD(l, "; ");
    }
}

static void add_group(wait_line *l, const scene *s, int first, const crowd *for_whom, bool *named)
{
    bool group[FL_MAX_WORKERS] = {false};
    const fl_wait_graph_worker *w = &s->workers[first];
    int n = 0;
    for (int i = first; i < s->n; i++) {
        group[i] = i != s->lost && same_wait(&s->workers[i].at, &w->at);
        named[i] = named[i] || group[i];
        n += group[i];
    }
    bool collective = newest(w, w->at.kind) != &w->reduce || has_bucket(w->at.kind);
    separate(l);
    add_workers(l, group, s->n, n);
    ADD(l, n == 1 ? " waits for " : " wait for ");
    add_workers(l, for_whom->in, s->n, for_whom->n);
    if (collective) {
        ADD(l, for_whom->absent ? ", which never arrived," : ", which arrived and did not finish,");
    }
    ADD(l, " in ");
    fl_flight_entry at = w->at;
    at.peer = -1; /* named already */
    add_operation(l, s, &at, &w->phase);
}

/* Groups that wait for the lost worker come first: the line may have no room for all. */
static void add_waiting(wait_line *l, const scene *s)
{
    bool named[FL_MAX_WORKERS] = {false};
    crowd c;
    int n_groups = 0, n_more = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < s->n; i++) {
            if (named[i] || i == s->lost) {
                continue;
            }
            awaited(s, i, &c);
            bool now = turn == 1 || (s->lost >= 0 && c.in[s->lost]);
            if (c.n == 0 || !now) {
                continue;
            }
            if (n_groups < GROUPS) {
                n_groups++;
                add_group(l, s, i, &c, named);
            } else {
                named[i] = true;
                n_more++;
            }
        }
    }
    if (n_more > 0) {
        ADD(l, "; %d more wait", n_more);
    }
}

static void add_place(wait_line *l, const scene *s, int rank)
{
    const fl_wait_graph_worker *w = &s->workers[rank];
    const fl_flight_entry *e = w->at.kind != FL_FLIGHT_NONE ? &w->at : &w->last;
    int64_t since_ns = e == &w->at ? e->entered_ns : e->left_ns;
    if (e->kind == FL_FLIGHT_NONE) {
        return; /* it has not started */
    }
    separate(l);
    ADD(l, "worker %d %s ", rank, e == &w->at ? "is in" : "is behind");
    add_operation(l, s, e, &w->phase);
    ADD(l, ", since %.1f s", (double)(s->now_ns - since_ns) * 1e-9);
}

/* No worker is lost: find those that wait for no other while others wait for them. */
static void list_culprits(const scene *s, bool *culprit)
{
    bool wanted[FL_MAX_WORKERS] = {false}, waits[FL_MAX_WORKERS] = {false};
    crowd c;
    for (int i = 0; i < s->n; i++) {
        awaited(s, i, &c);
        waits[i] = c.n > 0;
        for (int j = 0; j < s->n; j++) {
            wanted[j] = wanted[j] || c.in[j];
        }
    }
    for (int i = 0; i < s->n; i++) {
        culprit[i] = wanted[i] && !waits[i];
    }
}

static void add_culprits(wait_line *l, const scene *s)
{
    bool culprit[FL_MAX_WORKERS];
    int n_named = 0;
    list_culprits(s, culprit);
    for (int i = 0; i < s->n && n_named < GROUPS; i++) {
        if (culprit[i]) {
            add_place(l, s, i);
            n_named++;
        }
    }
}

int fl_wait_graph_culprit(const fl_wait_graph_worker *workers, int n, const fl_plan *plan)
{
    scene s = {.workers = workers, .n = n, .plan = plan, .lost = -1};
    bool culprit[FL_MAX_WORKERS];
    list_culprits(&s, culprit);
    for (int i = 0; i < n; i++) {
        if (culprit[i]) {
            return i;
        }
    }
    return -1;
}

const char *fl_wait_graph_explain(const fl_wait_graph_worker *workers, int n, const fl_plan *plan,
                                  const fl_model *model, int lost, int64_t now_ns, char *text,
                                  size_t size_bytes)
{
    scene s = {workers, n, plan, model, lost, now_ns};
    wait_line l = {text, size_bytes, 0};
    text[0] = 0;
    if (lost >= 0) {
        add_place(&l, &s, lost);
    } else {
        add_culprits(&l, &s);
    }
    add_waiting(&l, &s);
    return text;
}

const char *fl_wait_graph_openings(const fl_flight_entry *call, int n, char *text,
                                   size_t size_bytes)
{
    wait_line l = {text, size_bytes, 0};
    bool named[FL_MAX_WORKERS] = {false};
    text[0] = 0;
    for (int first = 0; first < n; first++) {
        bool in[FL_MAX_WORKERS] = {false};
        int count = 0;
        if (named[first] || !fl_wait_graph_opens(call[first].kind)) {
            continue;
        }
        for (int i = first; i < n; i++) {
            in[i] = call[i].kind == call[first].kind;
            named[i] = named[i] || in[i];
            count += in[i];
        }
        separate(&l);
        add_workers(&l, in, n, count);
        ADD(&l, " %s in %s", count == 1 ? "waits" : "wait", fl_flight_text(call[first].kind));
    }
    return text;
}
