#include "control/agent/wire/host_wire.h"

#include "control/agent/wire/reach_wire.h"
#include "control/link/wire/bytes.h"
#include "device/text/plain_name.h"

#include <math.h>

enum { MAGIC = 0x4f484c46 /* "FLHO" */, VERSION = 19 };

_Static_assert(2 * PATH_MAX + 2 * FL_HOST_TEXT + FL_HOSTS_ENDPOINT_MAX + 4 * FL_MAX_WORKERS + 64 <
                   FL_HOST_MESSAGE_MAX,
               "a welcome fits");
_Static_assert(9 * FL_MAX_WORKERS + 64 < FL_HOST_MESSAGE_MAX, "an order to reach all hosts fits");

/* A name of a host becomes part of paths. */
static bool get_name(fl_reader *r, char name[FL_HOST_TEXT])
{
    return fl_get_text(r, name, FL_HOST_TEXT - 1) && fl_name_is_plain(name, FL_HOST_TEXT - 1);
}

/* ---- welcome ---- */

static void put_facts(fl_writer *w, const fl_host_facts *f)
{
    fl_put_text(w, f->version, FL_HOST_VERSION_MAX);
    fl_put(w, f->model, 8);
    fl_put(w, f->data, 8);
    fl_put_i64(w, f->n_train);
    fl_put_i64(w, f->n_test);
    fl_put(w, f->weights, 8);
    fl_put(w, f->plugin, 8);
}

static bool get_facts(fl_reader *r, fl_host_facts *f)
{
    bool good = fl_get_text(r, f->version, FL_HOST_VERSION_MAX);
    f->model = fl_get(r, 8);
    f->data = fl_get(r, 8);
    f->n_train = fl_get_i64(r);
    f->n_test = fl_get_i64(r);
    f->weights = fl_get(r, 8);
    f->plugin = fl_get(r, 8);
    return good && f->n_train >= 0 && f->n_test >= 0;
}

static void put_ports(fl_writer *w, const uint16_t ports[2])
{
    fl_put(w, ports[0], 2);
    fl_put(w, ports[1], 2);
}

static bool get_ports(fl_reader *r, uint16_t ports[2])
{
    ports[0] = (uint16_t)fl_get(r, 2);
    ports[1] = (uint16_t)fl_get(r, 2);
    return ports[0] <= ports[1] && (ports[0] != 0 || ports[1] == 0);
}

static void put_welcome(fl_writer *w, const fl_host_welcome *v)
{
    fl_put_text(w, v->host.name, sizeof v->host.name - 1);
    fl_put_text(w, v->host.address, sizeof v->host.address - 1);
    fl_put(w, (uint32_t)v->host.first, 4);
    fl_put(w, (uint32_t)v->host.n, 4);
    fl_put_text(w, v->run_dir, sizeof v->run_dir - 1);
    fl_put_text(w, v->proof, sizeof v->proof - 1);
    fl_put_text(w, v->cwd, sizeof v->cwd - 1);
    fl_put_text(w, v->links, sizeof v->links - 1);
    fl_put_i64(w, v->silence_ms);
    put_facts(w, &v->facts);
    fl_put(w, v->continues, 1);
    fl_put(w, v->from_snapshot, 1);
    fl_put_i64(w, v->state_step);
    fl_put_i64(w, v->job_bytes);
    fl_put(w, (uint32_t)v->n_stores, 4);
    fl_put(w, (uint32_t)v->n_hosts, 4);
    for (int i = 0; i < v->n_hosts; i++) {
        fl_put(w, (uint32_t)v->first[i], 4);
    }
    fl_put(w, (uint32_t)v->n_first_ranks, 4);
    put_ports(w, v->ports);
}

/* The first workers of the hosts ascend, and this host is one of them, or a new one. */
static bool get_hosts(fl_reader *r, fl_host_welcome *v)
{
    bool ascends = true, is_one = false;
    v->job_bytes = fl_get_i64(r);
    v->n_stores = fl_get_i32(r);
    v->n_hosts = fl_get_i32(r);
    if (v->job_bytes < 1 || v->job_bytes > FL_HOST_JOB_MAX || v->n_stores < 0 ||
        v->n_stores > FL_MAX_WORKERS || v->n_hosts < 2 || v->n_hosts > FL_MAX_WORKERS) {
        return false;
    }
    for (int i = 0; i < v->n_hosts; i++) {
        v->first[i] = fl_get_i32(r);
        ascends = ascends && (i == 0 ? v->first[0] == 0 : v->first[i] > v->first[i - 1]);
        is_one = is_one || v->first[i] == v->host.first;
    }
    v->n_first_ranks = fl_get_i32(r);
    return ascends && (is_one || v->host.first >= v->n_first_ranks) &&
           v->n_first_ranks > v->first[v->n_hosts - 1] && v->n_first_ranks <= FL_MAX_WORKERS;
}

static bool get_welcome(fl_reader *r, fl_host_welcome *v)
{
    bool good =
        get_name(r, v->host.name) && fl_get_text(r, v->host.address, sizeof v->host.address - 1);
    v->host.first = fl_get_i32(r);
    v->host.n = fl_get_i32(r);
    good = good && fl_get_text(r, v->run_dir, sizeof v->run_dir - 1) &&
           fl_get_text(r, v->proof, sizeof v->proof - 1) &&
           (v->proof[0] == '\0' || fl_run_proof_is_name(v->proof)) &&
           fl_get_text(r, v->cwd, sizeof v->cwd - 1) &&
           fl_get_text(r, v->links, sizeof v->links - 1);
    v->silence_ms = fl_get_i64(r);
    good = get_facts(r, &v->facts) && good;
    good = fl_get_bool(r, &v->continues) && good;
    good = fl_get_bool(r, &v->from_snapshot) && good;
    v->state_step = fl_get_i64(r);
    return good && get_hosts(r, v) && get_ports(r, v->ports) && v->state_step >= -1 &&
           (v->continues || v->state_step < 0) && v->host.first >= 0 && v->host.n >= 1 &&
           v->host.first < FL_MAX_WORKERS && v->host.n <= FL_MAX_WORKERS - v->host.first &&
           v->run_dir[0] == '/' && v->cwd[0] == '/' && v->silence_ms > 0;
}

/* ---- join ---- */

static void put_join(fl_writer *w, const fl_host_join *v)
{
    fl_put_text(w, v->name, sizeof v->name - 1);
    fl_put_text(w, v->address, sizeof v->address - 1);
    fl_put_text(w, v->version, sizeof v->version - 1);
    fl_put(w, (uint32_t)v->n_devices, 4);
    fl_put(w, v->chosen, 1);
    fl_put(w, (uint32_t)v->n_own, 4);
    for (int i = 0; i < v->n_own; i++) {
        fl_put(w, v->own[i], 4);
    }
    fl_put_text(w, v->kind.processor, FL_MACHINE_KIND_TEXT - 1);
    fl_put_text(w, v->kind.gpus, FL_MACHINE_KIND_TEXT - 1);
    fl_put(w, v->door, 2);
}

static bool get_join(fl_reader *r, fl_host_join *v)
{
    bool good = get_name(r, v->name) && fl_get_text(r, v->address, sizeof v->address - 1) &&
                fl_get_text(r, v->version, sizeof v->version - 1);
    v->n_devices = fl_get_i32(r);
    good = fl_get_bool(r, &v->chosen) && good;
    v->n_own = fl_get_i32(r);
    if (v->n_own < 0 || v->n_own > FL_HOST_OWN_MAX) {
        return false;
    }
    for (int i = 0; i < v->n_own; i++) {
        v->own[i] = (uint32_t)fl_get(r, 4);
    }
    good = fl_get_text(r, v->kind.processor, FL_MACHINE_KIND_TEXT - 1) && good;
    good = fl_get_text(r, v->kind.gpus, FL_MACHINE_KIND_TEXT - 1) && good;
    v->door = (uint16_t)fl_get(r, 2);
    return good && v->n_devices >= 1 && v->n_devices <= FL_MAX_WORKERS;
}

/* ---- links between hosts ---- */

static void put_order(fl_writer *w, const fl_host_probe_order *v)
{
    fl_put(w, (uint32_t)v->n, 4);
    fl_put(w, (uint32_t)v->index, 4);
    for (int i = 0; i < v->n; i++) {
        fl_put(w, v->absent[i], 1);
    }
    fl_put_text(w, v->address, sizeof v->address - 1);
    fl_put_text(w, v->links, sizeof v->links - 1);
    fl_put(w, v->plain, 1);
    fl_put(w, v->number, 8);
    fl_put_i64(w, v->pair_ms);
    fl_put_i64(w, v->all_ms);
    fl_put_i64(w, v->silence_ms);
    put_ports(w, v->ports);
}

static bool get_order(fl_reader *r, fl_host_probe_order *v)
{
    memset(v, 0, sizeof *v);
    v->n = fl_get_i32(r);
    v->index = fl_get_i32(r);
    if (v->n < 2 || v->n > FL_MAX_WORKERS || v->index < 0 || v->index >= v->n) {
        return false;
    }
    bool good = true;
    for (int i = 0; i < v->n; i++) {
        good = fl_get_bool(r, &v->absent[i]) && good;
    }
    good = good && fl_get_text(r, v->address, sizeof v->address - 1) &&
           fl_get_text(r, v->links, sizeof v->links - 1) && fl_get_bool(r, &v->plain);
    v->number = fl_get(r, 8);
    v->pair_ms = fl_get_i64(r);
    v->all_ms = fl_get_i64(r);
    v->silence_ms = fl_get_i64(r);
    return good && get_ports(r, v->ports) && v->address[0] != '\0' && v->all_ms > 0 &&
           v->all_ms <= FL_HOST_PROBE_MS_MAX && v->pair_ms > 0 && v->pair_ms <= v->all_ms &&
           v->silence_ms > 0;
}

/* How a pair ended, in one byte: 0, REACHED, or REACHED and its stage. */
enum { REACHED = 1 };

static void put_result(fl_writer *w, const fl_host_link *v)
{
    fl_put(w, (uint32_t)v->a, 4);
    fl_put(w, (uint32_t)v->b, 4);
    fl_put(w, v->order, 8);
    fl_put(w, v->reached ? REACHED : v->stage == FL_HOST_LINK_OTHER ? 0 : REACHED + v->stage, 1);
    fl_put_f64(w, v->link.latency_us);
    fl_put_f64(w, v->link.bytes_per_us[0]);
    fl_put_f64(w, v->link.bytes_per_us[1]);
    fl_put_f64(w, v->link.reduce_bytes_per_us);
    fl_put_text(w, v->why, FL_HOST_LINK_WHY);
}

static bool is_rate(double x)
{
    return isfinite(x) && x > 0.0;
}

static bool get_result(fl_reader *r, fl_host_link *v)
{
    memset(v, 0, sizeof *v);
    v->a = fl_get_i32(r);
    v->b = fl_get_i32(r);
    v->order = fl_get(r, 8);
    uint64_t end = fl_get(r, 1);
    bool good = end <= REACHED + FL_HOST_LINK_NO_PORT;
    v->reached = end == REACHED;
    v->stage = good && end > REACHED ? (fl_host_link_stage)(end - REACHED) : FL_HOST_LINK_OTHER;
    v->link.latency_us = fl_get_f64(r);
    v->link.bytes_per_us[0] = fl_get_f64(r);
    v->link.bytes_per_us[1] = fl_get_f64(r);
    v->link.reduce_bytes_per_us = fl_get_f64(r);
    good = good && fl_get_text(r, v->why, FL_HOST_LINK_WHY);
    bool measured = is_rate(v->link.latency_us) && is_rate(v->link.bytes_per_us[0]) &&
                    is_rate(v->link.bytes_per_us[1]) && is_rate(v->link.reduce_bytes_per_us);
    return good && v->a >= 0 && v->b > v->a && v->b < FL_MAX_WORKERS && (measured || !v->reached);
}

/* ---- what layers cost ---- */

static void put_measure(fl_writer *w, const fl_host_measure_order *v)
{
    fl_put(w, v->number, 8);
    fl_put_text(w, v->host.name, sizeof v->host.name - 1);
    fl_put_text(w, v->host.address, sizeof v->host.address - 1);
    fl_put(w, (uint32_t)v->host.first, 4);
    fl_put(w, (uint32_t)v->host.n, 4);
    fl_put_text(w, v->run_dir, sizeof v->run_dir - 1);
    fl_put_text(w, v->cwd, sizeof v->cwd - 1);
    fl_put_i64(w, v->job_bytes);
    fl_put_i64(w, v->all_ms);
    fl_put_i64(w, v->silence_ms);
}

static bool get_measure(fl_reader *r, fl_host_measure_order *v)
{
    memset(v, 0, sizeof *v);
    v->number = fl_get(r, 8);
    bool good = fl_get_text(r, v->host.name, sizeof v->host.name - 1) &&
                fl_get_text(r, v->host.address, sizeof v->host.address - 1);
    v->host.first = fl_get_i32(r);
    v->host.n = fl_get_i32(r);
    good = good && fl_get_text(r, v->run_dir, sizeof v->run_dir - 1) &&
           fl_get_text(r, v->cwd, sizeof v->cwd - 1);
    v->job_bytes = fl_get_i64(r);
    v->all_ms = fl_get_i64(r);
    v->silence_ms = fl_get_i64(r);
    return good && v->host.first >= 1 && v->host.first < FL_MAX_WORKERS && v->host.n >= 1 &&
           v->host.n <= FL_MAX_WORKERS - v->host.first && v->run_dir[0] == '/' &&
           v->cwd[0] == '/' && v->job_bytes >= 1 && v->job_bytes <= FL_HOST_JOB_MAX &&
           v->all_ms >= 1 && v->all_ms <= FL_HOST_MEASURE_MS_MAX && v->silence_ms >= 1;
}

static void put_profile(fl_writer *w, const fl_host_profile_piece *v)
{
    fl_put(w, v->number, 8);
    fl_put(w, (uint32_t)v->size_bytes, 4);
    fl_put(w, (uint32_t)v->at, 4);
    memcpy(w->at, v->bytes, v->n);
    w->at += v->n;
}

static bool get_profile(fl_reader *r, fl_host_profile_piece *v)
{
    v->number = fl_get(r, 8);
    v->size_bytes = fl_get_i32(r);
    v->at = fl_get_i32(r);
    v->bytes = r->at;
    v->n = r->left;
    r->left = 0;
    return v->n >= 1 && v->n <= FL_HOST_PROFILE_PIECE && v->size_bytes >= 1 &&
           v->size_bytes <= FL_HOST_PROFILE_BYTES && v->at >= 0 && v->at < v->size_bytes &&
           v->n <= (size_t)(v->size_bytes - v->at);
}

/* ---- messages ---- */

size_t fl_host_wire_put(const fl_host_message *m, unsigned char out[FL_HOST_MESSAGE_MAX])
{
    fl_writer w = {.at = out};
    fl_put(&w, MAGIC, 4);
    fl_put(&w, VERSION, 2);
    fl_put(&w, (uint16_t)m->type, 2);
    switch (m->type) {
    case FL_HOST_FRAME:
    case FL_HOST_JOB:
        memcpy(w.at, m->frame.bytes, m->frame.n);
        w.at += m->frame.n;
        break;
    case FL_HOST_ALIVE:
    case FL_HOST_AGAIN:
    case FL_HOST_STOP:
    case FL_HOST_QUIT:
    case FL_HOST_FAILED:
    case FL_HOST_NEXT:
        break;
    case FL_HOST_JOIN:
        put_join(&w, &m->join);
        break;
    case FL_HOST_LEAVE:
    case FL_HOST_UNFIT:
    case FL_HOST_REFUSE:
    case FL_HOST_BUSY:
    case FL_HOST_LOST:
    case FL_HOST_RELEASE:
    case FL_HOST_APART:
        fl_put_text(&w, m->text, FL_HOST_TEXT_MAX);
        break;
    case FL_HOST_DOOR:
        fl_put(&w, m->door, 2);
        break;
    case FL_HOST_DRAIN:
        fl_put_i64(&w, m->grace_ms);
        break;
    case FL_HOST_PING:
        fl_put_i64(&w, m->clock.sent_ns);
        break;
    case FL_HOST_PONG:
        fl_put_i64(&w, m->clock.sent_ns);
        fl_put_i64(&w, m->clock.there_ns);
        fl_put_i64(&w, m->clock.wall_ns);
        break;
    case FL_HOST_WELCOME:
        put_welcome(&w, &m->welcome);
        break;
    case FL_HOST_PROBE:
        put_order(&w, &m->order);
        break;
    case FL_HOST_PROBED:
        put_result(&w, &m->probed);
        break;
    case FL_HOST_MEASURE:
        put_measure(&w, &m->measure);
        break;
    case FL_HOST_PROFILE:
        put_profile(&w, &m->profile);
        break;
    case FL_HOST_UNMEASURED:
        fl_put(&w, m->unmeasured.number, 8);
        fl_put_text(&w, m->unmeasured.text, FL_HOST_TEXT_MAX);
        break;
    case FL_HOST_REACH:
        fl_reach_put_order(&w, &m->reach);
        break;
    case FL_HOST_REACHED:
        fl_reach_put_answer(&w, &m->reached);
        break;
    }
    return (size_t)(w.at - out);
}

static bool get_body(fl_reader *r, fl_host_message *m)
{
    switch (m->type) {
    case FL_HOST_FRAME:
        m->frame.bytes = r->at;
        m->frame.n = r->left;
        r->left = 0;
        return m->frame.n > 0 && m->frame.n <= FL_AGENT_FRAME_MAX;
    case FL_HOST_JOB:
        m->frame.bytes = r->at;
        m->frame.n = r->left;
        r->left = 0;
        return m->frame.n > 0 && m->frame.n <= FL_HOST_JOB_PIECE;
    case FL_HOST_ALIVE:
    case FL_HOST_AGAIN:
    case FL_HOST_STOP:
    case FL_HOST_QUIT:
    case FL_HOST_FAILED:
    case FL_HOST_NEXT:
        return true;
    case FL_HOST_JOIN:
        return get_join(r, &m->join);
    case FL_HOST_LEAVE:
    case FL_HOST_UNFIT:
    case FL_HOST_REFUSE:
    case FL_HOST_BUSY:
    case FL_HOST_LOST:
    case FL_HOST_RELEASE:
    case FL_HOST_APART:
        return fl_get_text(r, m->text, FL_HOST_TEXT_MAX);
    case FL_HOST_DOOR:
        m->door = (uint16_t)fl_get(r, 2);
        return m->door > 0;
    case FL_HOST_DRAIN:
        m->grace_ms = fl_get_i64(r);
        return m->grace_ms > 0 && m->grace_ms <= FL_HOST_GRACE_MAX_MS;
    case FL_HOST_PING:
        m->clock.sent_ns = fl_get_i64(r);
        return m->clock.sent_ns > 0;
    case FL_HOST_PONG:
        m->clock.sent_ns = fl_get_i64(r);
        m->clock.there_ns = fl_get_i64(r);
        m->clock.wall_ns = fl_get_i64(r);
        return m->clock.sent_ns > 0 && m->clock.there_ns > 0 &&
               m->clock.there_ns <= FL_FLIGHT_TIME_MAX_NS; /* any time of day */
    case FL_HOST_WELCOME:
        return get_welcome(r, &m->welcome);
    case FL_HOST_PROBE:
        return get_order(r, &m->order);
    case FL_HOST_PROBED:
        return get_result(r, &m->probed);
    case FL_HOST_MEASURE:
        return get_measure(r, &m->measure);
    case FL_HOST_PROFILE:
        return get_profile(r, &m->profile);
    case FL_HOST_UNMEASURED:
        m->unmeasured.number = fl_get(r, 8);
        return fl_get_text(r, m->unmeasured.text, FL_HOST_TEXT_MAX);
    case FL_HOST_REACH:
        return fl_reach_get_order(r, &m->reach);
    case FL_HOST_REACHED:
        return fl_reach_get_answer(r, &m->reached);
    }
    return false;
}

fl_status fl_host_wire_get(const unsigned char *bytes, size_t n, fl_host_message *out)
{
    fl_reader r = {.at = bytes, .left = n};
    uint64_t magic = fl_get(&r, 4), version = fl_get(&r, 2);
    out->type = (fl_host_type)fl_get(&r, 2);
    if (r.short_of_bytes || magic != MAGIC) {
        return fl_fail(FL_EFORMAT, "%zu bytes that are no message between hosts", n);
    }
    if (version != VERSION) {
        return fl_fail(FL_ENOTSUP, "version %llu of the messages between hosts, allowed: %d",
                       (unsigned long long)version, VERSION);
    }
    if (!get_body(&r, out) || r.short_of_bytes || r.left > 0) {
        return fl_fail(FL_EFORMAT, "a message between hosts of type %d with %zu bytes",
                       (int)out->type, n);
    }
    return FL_OK;
}

bool fl_host_wire_asked(const unsigned char *bytes, size_t n, char name[FL_HOST_TEXT])
{
    fl_reader r = {.at = bytes, .left = n};
    uint64_t magic = fl_get(&r, 4);
    (void)fl_get(&r, 2); /* the version */
    uint64_t type = fl_get(&r, 2);
    return magic == MAGIC && type == FL_HOST_JOIN && get_name(&r, name) && !r.short_of_bytes;
}
