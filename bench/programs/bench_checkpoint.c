/* Time to write and to read a checkpoint of a model of about 100 million parameters with AdamW's
 * moments, 1.2 GB: bench/checkpoint_io.sh compares it with dd and with PyTorch.
 *
 *     bench_checkpoint write DIR [BLOCKS]   makes DIR/checkpoints/step-000000001
 *     bench_checkpoint read DIR [BLOCKS]    loads it, from the disk
 *     bench_checkpoint evict FILE...        drops files from the page cache
 */
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/state/checkpoint/checkpoint_source.h"
#include "pipe/state/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP = 1, MOMENTS = 2, BLOCKS = 14, WAIT_MS = 600000 };

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "bench_checkpoint: %s: %s\n", fl_status_text(status), fl_errmsg());
        exit(1);
    }
}

/* ---- a model and its state ---- */

typedef struct bench {
    fl_model *model;
    fl_device *device;
    fl_params params;
    fl_parked parked;
    fl_plan plan;
    fl_checkpoint_store store;
    fl_checkpoint_part_report part;
} bench;

/* Cheap, and nothing that a disk could compress. */
static fl_status read_noise(void *self, int layer, int index, int part, float *host)
{
    const bench *b = self;
    const fl_param_spec *spec = &fl_model_params(b->model, layer)->spec[index];
    uint64_t bits = (uint64_t)(layer * 64 + index * 4 + part) + 1;
    for (int64_t i = 0; i < spec->rows * spec->cols; i++) {
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        host[i] = (float)(int32_t)(bits >> 32) * 0x1p-31f;
    }
    return FL_OK;
}

static void open_model(bench *b, int blocks, const char *dir)
{
    const fl_vit_config config = {.channels = 3,
                                  .height = 224,
                                  .width = 224,
                                  .patch = 16,
                                  .dim = 768,
                                  .heads = 12,
                                  .blocks = blocks,
                                  .n_classes = 1000};
    memset(b, 0, sizeof *b);
    must(fl_model_vit(&config, &b->model));
    must(fl_device_cpu_create(1, NULL, (size_t)64 << 30, &b->device));
    int n = fl_model_n_layers(b->model);
    b->plan = (fl_plan){
        .generation = 1, .K = 1, .R = 1, .M = 1, .n_layers = n, .n_workers = 1, .first = {0, n}};
    must(fl_parked_init(&b->parked, b->device, n));
    must(fl_checkpoint_store_open(AT_FDCWD, dir, &b->store));
}

static void load_state(bench *b, const fl_state_source *source)
{
    const fl_params_options o = {.device = b->device,
                                 .model = b->model,
                                 .last = fl_model_n_layers(b->model),
                                 .n_moments = MOMENTS,
                                 .source = source};
    must(fl_params_init(&b->params, &o));
}

static int64_t state_bytes(const bench *b)
{
    int64_t n = 0;
    for (int layer = 0; layer < b->plan.n_layers; layer++) {
        n += fl_model_layer_n_params(b->model, layer);
    }
    return n * (1 + MOMENTS) * (int64_t)sizeof(float);
}

static void close_model(bench *b)
{
    fl_params_fini(&b->params);
    fl_parked_fini(&b->parked);
    fl_checkpoint_store_close(&b->store);
    fl_device_destroy(&b->device);
    fl_model_destroy(&b->model);
}

/* ---- write ---- */

static void ignore_file(void *context, const fl_checkpoint_file_report *report)
{
    (void)context;
    (void)report;
}

static void keep_part(void *context, const fl_checkpoint_part_report *report)
{
    bench *b = context;
    b->part = *report;
}

/* One memory copy of the same state, into memory that is there. */
static double copy_ms(const bench *b)
{
    size_t most = 0;
    for (int layer = 0; layer < b->plan.n_layers; layer++) {
        size_t n = (size_t)fl_params_layer_count(&b->params, layer) * sizeof(float);
        most += n * (1 + MOMENTS);
    }
    char *to = most == 0 ? NULL : malloc(most), *at = to;
    if (to == NULL) {
        exit(1);
    }
    memset(to, 1, most);
    int64_t started_us = fl_now_us();
    for (int layer = 0; layer < b->plan.n_layers; layer++) {
        size_t n = (size_t)fl_params_layer_count(&b->params, layer) * sizeof(float);
        if (n > 0) {
            memcpy(at, b->params.weight[layer], n);
            memcpy(at + n, b->params.moments[layer], n * MOMENTS);
            at += n * (1 + MOMENTS);
        }
    }
    double ms = (double)(fl_now_us() - started_us) * 1e-3;
    volatile char used = to[most / 2];
    (void)used;
    free(to);
    return ms;
}

static void write_state(bench *b)
{
    fl_checkpoint_writer *writer = NULL;
    const fl_checkpoint_writer_options options = {.model = b->model,
                                                  .device = b->device,
                                                  .store = &b->store,
                                                  .n_moments = MOMENTS,
                                                  .on_file = ignore_file,
                                                  .on_part = keep_part,
                                                  .context = b};
    const fl_checkpoint_state state = {
        .plan = &b->plan, .params = &b->params, .parked = &b->parked};
    fl_state_source noise = {.self = b, .read = read_noise, .has_moments = true};
    load_state(b, &noise);
    double memcpy_ms = copy_ms(b);
    must(fl_checkpoint_writer_create(&options, &writer));
    fl_checkpoint_writer_follow(writer, &b->plan, 0);
    fl_checkpoint_writer_prepare(writer, &state);
    must(fl_checkpoint_writer_wait(writer, fl_deadline_us(WAIT_MS)));
    int64_t started_us = fl_now_us();
    must(fl_checkpoint_writer_begin(writer, &state, STEP, 0));
    double stall_ms = (double)(fl_now_us() - started_us) * 1e-3;
    must(fl_checkpoint_writer_wait(writer, fl_deadline_us(WAIT_MS)));
    double write_ms = (double)(fl_now_us() - started_us) * 1e-3 - stall_ms;
    if (b->part.status != FL_OK) {
        fprintf(stderr, "bench_checkpoint: %s\n", b->part.text);
        exit(1);
    }
    printf("bytes %lld stall_ms %.1f memcpy_ms %.1f write_ms %.1f MBps %.1f\n",
           (long long)state_bytes(b), stall_ms, memcpy_ms, write_ms,
           (double)b->part.bytes * 1e-3 / write_ms);
    fl_checkpoint_writer_destroy(&writer);
}

/* ---- read ---- */

static int evict(int folder_fd, const char *path)
{
    int fd = openat(folder_fd, path, O_RDONLY);
    int error = fd < 0 ? 1 : fsync(fd) | posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (fd >= 0) {
        close(fd);
    }
    return error;
}

/* Counts the time of reads alone: without the model's memory, which is taken at the same time. */
typedef struct timed_source {
    fl_state_source source;
    int64_t us;
} timed_source;

static fl_status read_timed(void *self, int layer, int index, int part, float *host)
{
    timed_source *t = self;
    int64_t started_us = fl_now_us();
    fl_status status = t->source.read(t->source.self, layer, index, part, host);
    t->us += fl_now_us() - started_us;
    return status;
}

static void read_state(bench *b)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_source saved;
    int fd = openat(b->store.dir_fd, fl_checkpoint_folder_name(STEP, name), O_RDONLY);
    for (int layer = 0; layer < b->plan.n_layers; layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            (void)evict(fd, fl_checkpoint_file_name((fl_checkpoint_part)part, layer, name));
        }
    }
    timed_source timed = {fl_checkpoint_source_open(b->model, fd, MOMENTS, &saved), 0};
    fl_state_source source = {.self = &timed, .read = read_timed, .has_moments = true};
    int64_t started_us = fl_now_us();
    load_state(b, &source);
    double ms = (double)(fl_now_us() - started_us) * 1e-3;
    fl_checkpoint_source_close(&saved);
    printf("bytes %lld load_ms %.1f read_ms %.1f MBps %.1f\n", (long long)state_bytes(b), ms,
           (double)timed.us * 1e-3, (double)state_bytes(b) / (double)timed.us);
    close(fd);
}

int main(int argc, char **argv)
{
    bench b;
    if (argc >= 3 && strcmp(argv[1], "evict") == 0) {
        int error = 0;
        for (int i = 2; i < argc; i++) {
            error |= evict(AT_FDCWD, argv[i]);
        }
        return error == 0 ? 0 : 1;
    }
    if (argc < 3 || (strcmp(argv[1], "write") != 0 && strcmp(argv[1], "read") != 0)) {
        fprintf(stderr, "usage: bench_checkpoint write|read DIR [BLOCKS], or evict FILE...\n");
        return 2;
    }
    open_model(&b, argc > 3 ? atoi(argv[3]) : BLOCKS, argv[2]);
    if (strcmp(argv[1], "write") == 0) {
        write_state(&b);
    } else {
        read_state(&b);
    }
    close_model(&b);
    return 0;
}
