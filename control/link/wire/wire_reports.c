#include "control/link/wire/wire_reports.h"

#include "control/link/wire/ranges.h"

#include <string.h>

static size_t means_size(const fl_metric_means *means)
{
    return 4 + (size_t)means->n * 8;
}

static void put_means(fl_writer *w, const fl_metric_means *means)
{
    fl_put(w, (uint32_t)means->n, 4);
    for (int i = 0; i < means->n; i++) {
        fl_put_f64(w, means->mean[i]);
    }
}

/* False for more metrics than a loss can have. */
static bool get_means(fl_reader *r, fl_metric_means *means)
{
    uint64_t n = fl_get(r, 4);
    *means = (fl_metric_means){.n = n <= FL_METRICS_MAX ? (int)n : 0};
    for (int i = 0; i < means->n; i++) {
        means->mean[i] = fl_get_f64(r);
    }
    return n <= FL_METRICS_MAX;
}

size_t fl_wire_step_size(const fl_step_report *s)
{
    return 8 * 8 + 5 * 4 + means_size(&s->metrics);
}

void fl_wire_put_step(fl_writer *w, const fl_step_report *s)
{
    fl_put_i64(w, s->step);
    fl_put_i64(w, s->epoch);
    fl_put_f64(w, s->loss);
    fl_put_f64(w, s->grad_norm);
    fl_put_f64(w, s->lr);
    fl_put_f64(w, s->ms);
    fl_put_i64(w, s->samples);
    fl_put_i64(w, s->tokens);
    fl_put(w, (uint32_t)s->f, 4);
    fl_put(w, (uint32_t)s->k, 4);
    fl_put(w, (uint32_t)s->r, 4);
    fl_put(w, (uint32_t)s->m, 4);
    fl_put(w, s->skipped, 4);
    put_means(w, &s->metrics);
}

bool fl_wire_get_step(fl_reader *r, uint32_t generation, fl_step_report *s)
{
    *s = (fl_step_report){.step = fl_get_i64(r), .generation = generation};
    s->epoch = fl_get_i64(r);
    s->loss = fl_get_f64(r);
    s->grad_norm = fl_get_f64(r);
    s->lr = fl_get_f64(r);
    s->ms = fl_get_f64(r);
    s->samples = fl_get_i64(r);
    s->tokens = fl_get_i64(r);
    s->f = fl_get_i32(r);
    s->k = fl_get_i32(r);
    s->r = fl_get_i32(r);
    s->m = fl_get_i32(r);
    uint64_t skipped = fl_get(r, 4);
    s->skipped = skipped == 1;
    return get_means(r, &s->metrics) && skipped <= 1 && fl_wire_is_step(s->step) &&
           fl_wire_is_step(s->epoch) && fl_wire_is_count(s->samples) &&
           fl_wire_is_count(s->tokens) && fl_wire_is_ms(s->ms);
}

void fl_wire_put_time(fl_writer *w, const fl_time_report *t)
{
    fl_put_i64(w, t->step);
    fl_put_i64(w, t->compute_us);
    fl_put_i64(w, t->wait_us);
    fl_put_i64(w, t->reduce_wait_us);
    fl_put_i64(w, t->optimizer_us);
    fl_put_i64(w, t->data_us);
}

bool fl_wire_get_time(fl_reader *r, fl_time_report *t)
{
    t->step = fl_get_i64(r);
    t->compute_us = fl_get_i64(r);
    t->wait_us = fl_get_i64(r);
    t->reduce_wait_us = fl_get_i64(r);
    t->optimizer_us = fl_get_i64(r);
    t->data_us = fl_get_i64(r);
    return fl_wire_is_step(t->step) && fl_wire_is_us(t->compute_us) && fl_wire_is_us(t->wait_us) &&
           fl_wire_is_us(t->reduce_wait_us) && fl_wire_is_us(t->optimizer_us) &&
           fl_wire_is_us(t->data_us);
}

size_t fl_wire_eval_size(const fl_eval_report *e)
{
    return 7 * 8 + 4 + means_size(&e->metrics) + means_size(&e->test_metrics);
}

void fl_wire_put_eval(fl_writer *w, const fl_eval_report *e)
{
    fl_put_i64(w, e->epoch);
    fl_put_i64(w, e->step);
    fl_put_f64(w, e->loss);
    fl_put_f64(w, e->ms);
    fl_put_i64(w, e->samples);
    fl_put(w, (uint32_t)e->validation << 1 | (uint32_t)e->has_test, 4);
    fl_put_f64(w, e->test_loss);
    fl_put_i64(w, e->test_samples);
    put_means(w, &e->metrics);
    put_means(w, &e->test_metrics);
}

bool fl_wire_get_eval(fl_reader *r, fl_eval_report *e)
{
    e->epoch = fl_get_i64(r);
    e->step = fl_get_i64(r);
    e->loss = fl_get_f64(r);
    e->ms = fl_get_f64(r);
    e->samples = fl_get_i64(r);
    uint64_t flags = fl_get(r, 4);
    e->validation = flags >> 1 & 1;
    e->has_test = flags & 1;
    e->test_loss = fl_get_f64(r);
    e->test_samples = fl_get_i64(r);
    return get_means(r, &e->metrics) && get_means(r, &e->test_metrics) && flags < 4 &&
           fl_wire_is_step(e->epoch) && fl_wire_is_step(e->step) && fl_wire_is_count(e->samples) &&
           fl_wire_is_ms(e->ms) && fl_wire_is_count(e->test_samples);
}

size_t fl_wire_pass_size(const fl_pass_report *p)
{
    return 8 + 8 + (size_t)p->lines_bytes;
}

void fl_wire_put_pass(fl_writer *w, const fl_pass_report *p)
{
    fl_put_i64(w, p->batch);
    fl_put_i64(w, p->n_samples);
    if (p->lines_bytes > 0) {
        memcpy(w->at, p->lines, p->lines_bytes);
        w->at += p->lines_bytes;
    }
}

/* The lines are the rest of the frame; control/controller/parts/pass.c takes them apart. */
bool fl_wire_get_pass(fl_reader *r, fl_pass_report *p)
{
    p->batch = fl_get_i64(r);
    p->n_samples = fl_get_i64(r);
    p->lines = r->at;
    p->lines_bytes = (uint32_t)r->left;
    r->at += r->left;
    r->left = 0;
    return fl_wire_is_step(p->batch) && fl_wire_is_count(p->n_samples);
}

size_t fl_wire_ledger_size(const fl_wire_ledger *l)
{
    return 8 + 8 + 4 + 4 + (size_t)l->n * 8;
}

void fl_wire_put_ledger(fl_writer *w, const fl_wire_ledger *l)
{
    fl_put_i64(w, l->epoch);
    fl_put_i64(w, l->step);
    fl_put(w, (uint32_t)l->replica, 4);
    fl_put(w, l->n, 4);
    for (uint32_t i = 0; i < l->n; i++) {
        fl_put_i64(w, l->ids[i]);
    }
}

bool fl_wire_get_ledger(fl_reader *r, fl_wire_ledger *l)
{
    l->epoch = fl_get_i64(r);
    l->step = fl_get_i64(r);
    l->replica = fl_get_i32(r);
    l->n = (uint32_t)fl_get(r, 4);
    l->ids = NULL;
    l->wire = r->at;
    if (!fl_wire_is_step(l->epoch) || !fl_wire_is_step(l->step) || l->replica < 0 ||
        r->left != (size_t)l->n * 8) {
        return false;
    }
    r->at += r->left;
    r->left = 0;
    return true;
}

void fl_wire_put_memory(fl_writer *w, const fl_memory_report *m)
{
    fl_put_i64(w, m->used_bytes);
    fl_put_i64(w, m->peak_bytes);
    fl_put_i64(w, m->parked_bytes);
    fl_put_i64(w, m->workspace_bytes);
}

bool fl_wire_get_memory(fl_reader *r, fl_memory_report *m)
{
    m->used_bytes = fl_get_i64(r);
    m->peak_bytes = fl_get_i64(r);
    m->parked_bytes = fl_get_i64(r);
    m->workspace_bytes = fl_get_i64(r);
    return fl_wire_is_bytes(m->used_bytes) && fl_wire_is_bytes(m->peak_bytes) &&
           fl_wire_is_bytes(m->parked_bytes) && fl_wire_is_bytes(m->workspace_bytes);
}

/* ---- hashes of weights ---- */

size_t fl_wire_hashes_size(const fl_hashes_report *h)
{
    return 8 + 4 + 4 + 8 * (size_t)h->n;
}

void fl_wire_put_hashes(fl_writer *w, const fl_hashes_report *h)
{
    fl_put_i64(w, h->step);
    fl_put(w, (uint32_t)h->first, 4);
    fl_put(w, (uint32_t)h->n, 4);
    for (int i = 0; i < h->n; i++) {
        fl_put(w, h->hash[i], 8);
    }
}

bool fl_wire_get_hashes(fl_reader *r, fl_hashes_report *h)
{
    h->step = fl_get_i64(r);
    h->first = fl_get_i32(r);
    h->n = fl_get_i32(r);
    if (!fl_wire_is_step(h->step) || h->first < 0 || h->n < 1 || h->first > FL_MAX_LAYERS ||
        h->n > FL_MAX_LAYERS - h->first) {
        return false;
    }
    for (int i = 0; i < h->n; i++) {
        h->hash[i] = fl_get(r, 8);
    }
    return true;
}
