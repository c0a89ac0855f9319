#include "support/data/checkpoints.h"

#include "device/random/random.h"
#include "device/system/alloc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

enum { LAYERS = 3, WORKERS = 2, STEPS_PER_EPOCH = 40, FILE_BYTES = 400 };

/* ---- values ---- */

static uint64_t draw(uint64_t *state)
{
    return *state = fl_mix64(*state, 0x9e3779b97f4a7c15u);
}

/* Any finite double, of any size. */
static double draw_real(uint64_t *state)
{
    double value;
    uint64_t bits = draw(state) & ~(UINT64_C(1) << 52);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void fill_integer(const fl_member *m, uint64_t *state, char *at)
{
    uint64_t range = (uint64_t)m->most - (uint64_t)m->least;
    bool any = m->least == 0 && m->most == 0;
    int64_t wide = any ? (int64_t)draw(state) : m->least + (int64_t)(draw(state) % (range + 1));
    int number = (int)wide;
    uint32_t natural = (uint32_t)draw(state);
    if (m->type == FL_MEMBER_INT) {
        memcpy(at, &number, sizeof number);
    } else if (m->type == FL_MEMBER_UINT32) {
        memcpy(at, &natural, sizeof natural);
    } else {
        memcpy(at, &wide, sizeof wide);
    }
}

static void fill(const fl_member *members, uint64_t *state, void *to);

static void fill_member(const fl_member *m, uint64_t *state, void *base)
{
    char *at = (char *)base + m->offset;
    double real = draw_real(state);
    bool truth = draw(state) % 2 == 0;
    switch (m->type) {
    case FL_MEMBER_REAL:
        memcpy(at, &real, sizeof real);
        break;
    case FL_MEMBER_BOOL:
        memcpy(at, &truth, sizeof truth);
        break;
    case FL_MEMBER_OBJECT:
        fill(m->of, state, at);
        break;
    case FL_MEMBER_ARRAY:
        for (int64_t i = 0; i < (m->count == NULL ? (int64_t)m->capacity : m->count(base)); i++) {
            fill_member(m->of, state, at + (size_t)i * m->item_bytes);
        }
        break;
    case FL_MEMBER_INT:
    case FL_MEMBER_UINT32:
    case FL_MEMBER_INT64:
        fill_integer(m, state, at);
        break;
    case FL_MEMBER_HASH:
    case FL_MEMBER_TEXT:
    case FL_MEMBER_STRING:
        break;
    }
}

static void fill(const fl_member *members, uint64_t *state, void *to)
{
    for (const fl_member *m = members; m->name != NULL; m++) {
        fill_member(m, state, to);
    }
}

/* ---- a checkpoint ---- */

static void make_agree(fl_controller_state *state, int64_t step)
{
    state->n_workers = WORKERS;
    state->n_layers = LAYERS;
    state->stats.steps = step;
    state->stats.n_steps = step + 1000;
    state->stats.now.steps = step % STEPS_PER_EPOCH;
    state->lr = 1e-3;
    state->alpha = 1.0 / 3.0;
    state->tune.tuner.leader = state->tune.tuner.at = 0;
    state->tune.racing = state->tune.racing && state->tune.tuner.n > 0;
    for (int i = 0; i < FL_MAX_LAYERS; i++) {
        state->parked[i] = i >= LAYERS ? 0 : i == 0 ? 1 : -1;
        state->since[i] = i == 1 ? step / 2 : 0;
    }
    state->wanted_k = 2;
    state->wanted_r = 1;
    state->n_started = WORKERS;
    memset(state->usable.drained, 0, sizeof state->usable.drained);
}

static void set_model(fl_checkpoint_model *model)
{
    snprintf(model->name, sizeof model->name, "toy");
    model->fingerprint = 0x0123456789abcdef;
    model->n_layers = LAYERS;
    for (int i = 0; i < LAYERS; i++) {
        snprintf(model->layer[i].name, sizeof model->layer[i].name, "blocks.%d", i);
        model->layer[i].block = i + 1;
        model->layer[i].n_params = 100 * (i + 1);
    }
}

fl_checkpoint *make_checkpoint(int64_t step, unsigned seed)
{
    fl_checkpoint *c = NULL;
    uint64_t state = seed;
    int failed = fl_alloc(sizeof *c, (void **)&c) != FL_OK || fl_strdup("name: toy\n", &c->job);
    if (failed) {
        abort();
    }
    fill(fl_controller_state_members, &state, &c->controller);
    make_agree(&c->controller, step);
    set_model(&c->model);
    snprintf(c->written, sizeof c->written, "2026-01-31T09:30:00.000Z");
    snprintf(c->frostline, sizeof c->frostline, "0.1.0");
    c->step = step;
    c->cursor =
        (fl_cursor){.epoch = step / STEPS_PER_EPOCH, .position = 8 * (step % STEPS_PER_EPOCH)};
    c->data = (fl_checkpoint_data){.fingerprint = 77, .n_samples = 320, .n_validation = 5};
    c->plan = (fl_plan){.generation = 3, .F = 1, .K = 2, .R = 1, .M = 4, .schedule = FL_1F1B};
    c->plan.n_layers = LAYERS;
    c->plan.n_workers = WORKERS;
    c->plan.first[1] = 1;
    c->plan.first[2] = LAYERS;
    c->plan.rank_of[1] = 1;
    c->plan.predicted_step_us = 1234.5678;
    c->worker = (fl_checkpoint_worker){
        .lr_factor = 0.1, .end_step = step + 1000, .planned_steps = step + 1000, .n_skipped = 1};
    c->records = (fl_checkpoint_records){.steps_bytes = 100 * step, .events_bytes = 4000};
    return c;
}

void destroy_checkpoint(fl_checkpoint *checkpoint)
{
    fl_checkpoint_fini(checkpoint);
    fl_free(checkpoint);
}

fl_checkpoint *make_listed_checkpoint(int64_t step, unsigned seed)
{
    fl_checkpoint *c = make_checkpoint(step, seed);
    c->n_files = 2;
    c->file[0] = (fl_checkpoint_entry){.name = "weights-000.safetensors", .bytes = 5, .xxh64 = 6};
    c->file[1] = (fl_checkpoint_entry){.name = FL_CHECKPOINT_INDEX, .bytes = 7, .xxh64 = 8};
    return c;
}

void assert_same_checkpoint(const fl_checkpoint *a, const fl_checkpoint *b)
{
    size_t after = offsetof(fl_checkpoint, job) + sizeof a->job;
    assert_memory_equal(a, b, offsetof(fl_checkpoint, job));
    assert_memory_equal((const char *)a + after, (const char *)b + after, sizeof *a - after);
    assert_string_equal(a->job, b->job);
}

/* ---- folders ---- */

static void write_file(int folder_fd, fl_checkpoint *c, const char *name)
{
    char bytes[FILE_BYTES];
    fl_checkpoint_entry *entry = &c->file[c->n_files++];
    memset(bytes, c->n_files, sizeof bytes);
    *entry = (fl_checkpoint_entry){.bytes = FILE_BYTES, .xxh64 = XXH64(bytes, sizeof bytes, 0)};
    snprintf(entry->name, sizeof entry->name, "%s", name);
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, sizeof bytes) != FILE_BYTES || close(fd) != 0) {
        abort();
    }
}

void write_checkpoint(const char *dir, fl_checkpoint *checkpoint)
{
    char name[FL_CHECKPOINT_NAME_MAX], path[256];
    snprintf(path, sizeof path, "%s/%s", dir, fl_checkpoint_folder_name(checkpoint->step, name));
    int fd = mkdir(path, 0700) != 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        abort();
    }
    checkpoint->n_files = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        write_file(fd, checkpoint, fl_checkpoint_file_name(FL_CHECKPOINT_WEIGHTS, layer, name));
        write_file(fd, checkpoint, fl_checkpoint_file_name(FL_CHECKPOINT_MOMENTS, layer, name));
    }
    write_file(fd, checkpoint, FL_CHECKPOINT_INDEX);
    if (fl_checkpoint_write(checkpoint, fd) != FL_OK) {
        abort();
    }
    close(fd);
}
