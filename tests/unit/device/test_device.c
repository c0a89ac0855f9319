/* Devices. Catches a budget that can be passed, memory that is not accounted for, kernels that
 * allocate in each call, dry runs that take memory, and thread pins that are not set. */
#include "support/device/kernels.h"

#include "device/system/alloc.h"

#include <pthread.h>
#include <sched.h>

static void test_alloc__keeps_the_budget(void **state)
{
    (void)state;
    fl_device *d = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, 1000, &d), FL_OK);
    void *a = NULL, *b = NULL;
    assert_int_equal(fl_device_alloc(d, 600, "weights", &a), FL_OK);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal(fl_device_alloc(d, 401, "moments", &b), FL_EBUDGET);
    assert_string_equal(fl_errmsg(),
                        "moments: 401 bytes asked, 600 of 1000 in use on this cpu device");
    assert_null(b);
    assert_int_equal(fl_device_alloc(d, SIZE_MAX, "moments", &b), FL_EBUDGET);
    assert_int_equal(fl_device_alloc(d, 400, "moments", &b), FL_OK);
    fl_device_free(d, b, 400);
    fl_device_free(d, NULL, 12);
    assert_int_equal(d->used_bytes, 600);
    assert_int_equal(d->peak_bytes, 1000);
    fl_device_free(d, a, 600);
    assert_int_equal(d->used_bytes, 0);
    fl_device_destroy(&d);
    assert_null(d);
    fl_device_destroy(&d);
}

enum { ROUNDS = 200000, ROOM = 64 };

/* Take and return device memory as a prepare thread does while the main thread trains. */
static void *claim_and_disclaim(void *device)
{
    fl_device *d = device;
    for (int i = 0; i < ROUNDS; i++) {
        if (fl_device_claim(d, ROOM, "weights") != FL_OK) {
            return d;
        }
        fl_device_disclaim(d, ROOM);
    }
    return NULL;
}

/* Would catch: a worker whose count of used memory drifts because two threads change it at once. */
static void test_claim__two_threads_at_once_are_counted_exactly(void **state)
{
    (void)state;
    fl_device *d = NULL;
    pthread_t other;
    void *failed = NULL;
    fl_status status = fl_device_cpu_create(1, NULL, 2 * ROOM, &d);
    if (status != FL_OK || d == NULL) {
        fail_msg("%s", fl_errmsg());
        return;
    }
    assert_int_equal(pthread_create(&other, NULL, claim_and_disclaim, d), 0);
    assert_null(claim_and_disclaim(d));
    assert_int_equal(pthread_join(other, &failed), 0);
    assert_null(failed);
    assert_int_equal(d->used_bytes, 0);
    assert_in_range(d->peak_bytes, ROOM, 2 * ROOM);
    fl_device_destroy(&d);
}

static void test_cpu__copies_and_clears(void **state)
{
    (void)state;
    fl_device *d = NULL;
    fl_stream *s = NULL;
    void *memory = NULL;
    char back[8] = "";
    assert_int_equal(fl_device_cpu_create(1, NULL, 1000, &d), FL_OK);
    assert_int_equal(d->ops->stream_create(d, &s), FL_OK);
    assert_int_equal(fl_device_alloc(d, 8, "text", &memory), FL_OK);
    assert_int_equal(d->ops->copy_in(d, s, memory, "frost", 6), FL_OK);
    assert_int_equal(d->ops->copy_out(d, s, back, memory, 6), FL_OK);
    assert_int_equal(d->ops->sync(d, s), FL_OK);
    assert_string_equal(back, "frost");
    assert_int_equal(d->ops->fill_zero(d, s, memory, 8), FL_OK);
    assert_int_equal(((char *)memory)[0], 0);
    d->ops->stream_destroy(d, &s);
    fl_device_free(d, memory, 8);
    fl_device_destroy(&d);
}

/* Every kind of device has streams and events that exist, and a complete table. */
static void use_streams(fl_device *d)
{
    fl_stream *one = NULL, *other = NULL;
    fl_event *begun = NULL, *done = NULL;
    void *memory = NULL, *host = NULL;
    fl_native native;
    bool reached = false;
    double us = -1.0;
    assert_int_equal(fl_device_ops_check(d->ops), FL_OK);
    assert_int_equal(d->ops->stream_create(d, &one), FL_OK);
    assert_int_equal(d->ops->stream_create(d, &other), FL_OK);
    assert_int_equal(d->ops->event_create(d, &begun), FL_OK);
    assert_int_equal(d->ops->event_create(d, &done), FL_OK);
    assert_non_null(one);
    assert_non_null(done);
    assert_int_equal(fl_device_alloc(d, 16, "text", &memory), FL_OK);
    assert_int_equal(d->ops->host_take(d, 8, &host), FL_OK);
    assert_int_equal(((char *)host)[7], 0);
    memcpy(host, "frost", 6);
    assert_int_equal(d->ops->event_wait(d, done), FL_OK); /* never recorded: reached */
    assert_int_equal(d->ops->event_record(d, begun, one), FL_OK);
    assert_int_equal(d->ops->copy_in(d, one, memory, host, 8), FL_OK);
    assert_int_equal(d->ops->event_record(d, done, one), FL_OK);
    assert_int_equal(d->ops->stream_wait(d, other, done), FL_OK);
    assert_int_equal(d->ops->copy(d, other, (char *)memory + 8, memory, 8), FL_OK);
    assert_int_equal(d->ops->copy_out(d, other, host, (char *)memory + 8, 8), FL_OK);
    assert_int_equal(d->ops->sync(d, other), FL_OK);
    assert_int_equal(d->ops->event_reached(d, done, &reached), FL_OK);
    assert_true(reached);
    bool has_libraries = strcmp(d->ops->kind, "async-test") == 0;
    assert_int_equal(d->ops->stream_native(d, one, &native), has_libraries ? FL_OK : FL_ENOTSUP);
    assert_int_equal(d->ops->event_elapsed(d, begun, done, &us), FL_OK);
    assert_true(us >= 0.0);
    if (strcmp(d->ops->kind, "null") != 0) {
        assert_string_equal(host, "frost");
    }
    d->ops->host_give(d, host, 8);
    fl_device_free(d, memory, 16);
    d->ops->event_destroy(d, &begun);
    d->ops->event_destroy(d, &done);
    d->ops->stream_destroy(d, &one);
    d->ops->stream_destroy(d, &other);
    assert_null(done);
    assert_null(one);
}

static void test_device__streams_and_events_exist(void **state)
{
    (void)state;
    fl_device *d = NULL;
    const fl_device_options async = {
        .kind = FL_DEVICE_ASYNC_TEST, .n_threads = 1, .budget_bytes = 1000};
    assert_int_equal(fl_device_open(&async, &d), FL_OK);
    use_streams(d);
    fl_device_destroy(&d);
    assert_int_equal(fl_device_cpu_create(1, NULL, 1000, &d), FL_OK);
    use_streams(d);
    fl_device_destroy(&d);
    assert_int_equal(fl_device_null_create(&d), FL_OK);
    use_streams(d);
    fl_device_destroy(&d);
}

static void test_device_ops__refuses_another_build(void **state)
{
    (void)state;
    fl_device *d = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, 1000, &d), FL_OK);
    fl_device_ops older = *d->ops, smaller = *d->ops, partial = *d->ops;
    older.version = 1;
    smaller.size_bytes -= 8;
    partial.add = NULL;
    assert_int_equal(fl_device_ops_check(&older), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), "version 1"));
    assert_int_equal(fl_device_ops_check(&smaller), FL_ENOTSUP);
    assert_int_equal(fl_device_ops_check(&partial), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), "device cpu lacks function"));
    fl_device_destroy(&d);
}

static void test_cpu__refuses_what_is_not_there(void **state)
{
    (void)state;
    fl_device *d = NULL;
    const int none[] = {-1}, far[] = {CPU_SETSIZE - 1};
    assert_int_equal(fl_device_cpu_create(0, NULL, 1000, &d), FL_EINVAL);
    assert_int_equal(fl_device_cpu_create(1, none, 1000, &d), FL_EINVAL);
    assert_int_equal(fl_device_cpu_create(1, far, 1000, &d), FL_EINVAL);
    assert_null(d);
    d = cpu_with(1);
    assert_int_equal(fl__cpu_isa_set(d, "nothing"), FL_ENOTSUP);
    fl_device_destroy(&d);
}

/* The kind comes from the job; a kind that this build lacks must not become another one. */
static void test_device_open__follows_the_kind(void **state)
{
    (void)state;
    fl_device *d = NULL;
    fl_device_options options = {.kind = FL_DEVICE_CPU, .n_threads = 1, .budget_bytes = 1000};
    assert_int_equal(fl_device_open(&options, &d), FL_OK);
    assert_string_equal(d->ops->kind, "cpu");
    assert_int_equal(d->budget_bytes, 1000);
    fl_device_destroy(&d);
    options.kind = (fl_device_kind)99;
    assert_int_equal(fl_device_open(&options, &d), FL_ENOTSUP);
    assert_null(d);
}

static void test_cpu__pins_this_thread(void **state)
{
    (void)state;
    cpu_set_t before, now;
    fl_device *d = NULL;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int last = -1;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        last = CPU_ISSET((size_t)i, &before) ? i : last;
    }
    assert_int_equal(fl_device_cpu_create(1, &last, 1000, &d), FL_OK);
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_int_equal(CPU_COUNT(&now), 1);
    assert_true(CPU_ISSET((size_t)last, &now));
    fl_device_destroy(&d);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* A failed allocation at any place leaves nothing behind (the address sanitizer looks). */
static void test_cpu__create_survives_failing_allocations(void **state)
{
    (void)state;
    fl_status status = FL_ENOMEM;
    int n_failed = 0;
    for (uint64_t n = 1; status == FL_ENOMEM; n++) {
        fl_device *d = NULL;
        fl_alloc_fail_at(n);
        status = fl_device_cpu_create(1, NULL, 1000, &d);
        assert_true((d == NULL) == (status == FL_ENOMEM));
        n_failed += status == FL_ENOMEM ? 1 : 0;
        fl_device_destroy(&d);
    }
    fl_alloc_fail_at(0);
    assert_int_equal(status, FL_OK);
    assert_true(n_failed >= 1);
}

enum { TOKENS = 40, WIDTH = 32, HEADS = 2 };

static void run_sums(fl_device *d, float *x, float *y, float *z)
{
    static const int32_t offsets[] = {0, 17, TOKENS}, targets[TOKENS] = {0};
    const fl_adamw_step adamw = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 1.0f};
    const fl_sgd_step sgd = {1e-3f, 0.9f, 1.0f};
    double sum = 0.0, correct = 0.0;
    int64_t n = TOKENS * WIDTH;
    const fl_update update = {y, x, {z, z + n}, n, 0.0f, 1.0f};
    const fl_square_sum square = {x, n, &sum};
    RUN(d, cross_entropy, .logits = x, .targets = targets, .m = TOKENS, .n = WIDTH,
        .grad_scale = 1.0f, .grad = y, .loss = &sum, .n_correct = &correct);
    RUN(d, span_cross_entropy, .logits = x, .offsets = offsets_of(offsets, 2), .targets = targets,
        .columns = 2, .grad_scale = 1.0f, .grad = y, .loss = &sum);
    assert_int_equal(d->ops->add_to_sum(d, NULL, 1.0, &sum), FL_OK);
    assert_int_equal(d->ops->adamw_many(d, NULL, &update, 1, &adamw), FL_OK);
    assert_int_equal(d->ops->sgd_many(d, NULL, &update, 1, &sgd), FL_OK);
    assert_int_equal(d->ops->sum_squares_many(d, NULL, &square, 1), FL_OK);
}

static void run_rows(fl_device *d, float *x, float *y, fl_weight *w, fl_offsets offsets)
{
    static const int32_t index[] = {3, 1};
    const fl_embed_args embed = {.offsets = offsets,
                                 .table = {{.weight = w, .ids = index, .stride = 0},
                                           {.weight = w, .ids = index, .stride = 0, .grad = y}},
                                 .n_tables = 2,
                                 .width = WIDTH,
                                 .y = y};
    RUN(d, gather_rows, .in = x, .index = index, .y = y, .n_rows = 2, .width = WIDTH);
    RUN(d, scatter_rows, .in = x, .index = index, .y = y, .n_rows = 2, .total_rows = 4,
        .width = WIDTH);
    assert_int_equal(d->ops->embed(d, NULL, &embed), FL_OK);
    RUN(d, embed_backward, .forward = embed, .grad_y = x);
    RUN(d, patchify, .images = x, .patches = y, .n = 1, .channels = 1, .height = 4, .width = 4,
        .patch = 2);
    RUN_AS(d, patchify_backward, patchify, .images = x, .patches = y, .n = 1, .channels = 1,
           .height = 4, .width = 4, .patch = 2);
    RUN(d, vit_assemble, .patches = x, .cls = w, .pos = w, .y = y, .n = 2, .n_patches = 3,
        .dim = 8);
    RUN(d, vit_assemble_backward, .grad_y = x, .grad_patches = y, .n = 2, .n_patches = 3, .dim = 8);
    RUN(d, add, .a = x, .b = y, .y = y, .n = WIDTH);
    RUN(d, convert, .in = x, .y = y, .to = FL_BF16, .n = WIDTH);
}

/* Every kernel once. */
static void run_kernels(fl_device *d, float *x, float *y, float *z, fl_weight *w)
{
    static const int32_t host[] = {0, 17, TOKENS};
    static const int64_t ids[] = {5, 9};
    const fl_offsets offsets = offsets_of(host, 2);
    const fl_mask mask = {.p = 0.5f, .sample_ids = ids, .sample_ids_device = ids};
    float lse[TOKENS * HEADS];
    int64_t n = TOKENS * WIDTH;
    const fl_attention_args attention = {.qkv = x,
                                         .offsets = offsets,
                                         .heads = HEADS,
                                         .width = WIDTH,
                                         .causal = true,
                                         .scale = 0.25f,
                                         .mask = mask,
                                         .y = y,
                                         .lse = lse};
    RUN(d, linear, .in = x, .w = w, .activation = FL_ACT_TANH, .pre = y, .y = z, .m = TOKENS);
    RUN(d, linear_backward_input, .grad_out = x, .w = w, .grad_in = y, .m = TOKENS);
    RUN(d, linear_backward_weights, .grad_out = x, .in = y, .grad_w = z, .grad_bias = z + n,
        .m = TOKENS, .n_out = WIDTH, .n_in = WIDTH);
    RUN(d, activate, .activation = FL_ACT_SILU, .in = x, .y = y, .n = n);
    RUN(d, activate_backward, .activation = FL_ACT_SILU, .grad_y = x, .pre = y, .grad_pre = y,
        .n = n);
    RUN_AS(d, layernorm, norm, .in = x, .gamma = w, .beta = w, .y = y, .mean = z, .rstd = z + n,
           .m = TOKENS, .n = WIDTH);
    RUN_AS(d, layernorm_backward, norm_backward, .grad_y = x, .in = x, .gamma = w, .mean = z,
           .rstd = z + n, .grad_in = y, .grad_gamma = z, .grad_beta = z, .m = TOKENS, .n = WIDTH);
    RUN_AS(d, rmsnorm, norm, .in = x, .gamma = w, .y = y, .rstd = z + n, .m = TOKENS, .n = WIDTH);
    RUN_AS(d, rmsnorm_backward, norm_backward, .grad_y = x, .in = x, .gamma = w, .rstd = z + n,
           .grad_in = y, .grad_gamma = z, .m = TOKENS, .n = WIDTH);
    assert_int_equal(d->ops->attention(d, NULL, &attention), FL_OK);
    RUN(d, attention_backward, .forward = attention, .grad_y = y, .grad_qkv = z);
    RUN(d, dropout, .in = x, .offsets = offsets, .width = WIDTH, .mask = mask, .y = y);
    RUN(d, linear, .dtype = FL_BF16, .in = x, .w = w, .y = z, .m = TOKENS);
    run_rows(d, x, y, w, offsets);
    run_sums(d, x, y, z);
}

static void test_cpu__kernels_allocate_only_the_first_time(void **state)
{
    (void)state;
    fl_device *d = cpu_with(2);
    float *x = random_floats(TOKENS * 3 * WIDTH, 1, 1.0f), *y = zeros(TOKENS * 3 * WIDTH);
    float *z = zeros(TOKENS * 3 * WIDTH), *data = random_floats(WIDTH * WIDTH, 2, 1.0f);
    fl_weight w = weight_of(data, WIDTH, WIDTH);
    run_kernels(d, x, y, z, &w);
    uint64_t before = fl_alloc_count();
    for (int i = 0; i < 3; i++) {
        w.version++;
        run_kernels(d, x, y, z, &w);
    }
    assert_int_equal(fl_alloc_count(), before);
    d->ops->weight_release(d, &w);
    free(x);
    free(y);
    free(z);
    free(data);
    fl_device_destroy(&d);
}

/* More bytes than any machine that runs this test has; ThreadSanitizer needs most of the address
 * space for itself. */
#ifdef __SANITIZE_THREAD__
#define MORE_THAN_MEMORY ((size_t)1 << 37)
#else
#define MORE_THAN_MEMORY ((size_t)1 << 40)
#endif

static void test_null__has_every_kernel_and_no_memory(void **state)
{
    (void)state;
    fl_device *d = NULL;
    assert_int_equal(fl_device_null_create(&d), FL_OK);
    void *memory = NULL;
    const size_t size = MORE_THAN_MEMORY;
    assert_int_equal(fl_device_alloc(d, size, "model", &memory), FL_OK);
    assert_int_equal(((char *)memory)[size - 1], 0);
    assert_int_equal(d->used_bytes, size);
    float *x = memory;
    fl_weight w = {x, WIDTH, WIDTH, 1, NULL};
    run_kernels(d, x, x, x, &w);
    double loss = 2.0, correct = 1.0;
    const int32_t target = 0;
    RUN(d, cross_entropy, .logits = x, .targets = &target, .m = 1, .n = 10, .grad_scale = 1.0f,
        .grad = x, .loss = &loss, .n_correct = &correct);
    assert_true(loss == 2.0 && correct == 1.0);
    char host[4] = "abc";
    assert_int_equal(d->ops->copy_out(d, NULL, host, memory, 4), FL_OK);
    assert_int_equal(host[0], 0);
    d->ops->weight_release(d, &w);
    fl_device_free(d, memory, size);
    fl_device_destroy(&d);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc__keeps_the_budget),
        cmocka_unit_test(test_claim__two_threads_at_once_are_counted_exactly),
        cmocka_unit_test(test_cpu__copies_and_clears),
        cmocka_unit_test(test_device__streams_and_events_exist),
        cmocka_unit_test(test_device_ops__refuses_another_build),
        cmocka_unit_test(test_cpu__refuses_what_is_not_there),
        cmocka_unit_test(test_device_open__follows_the_kind),
        cmocka_unit_test(test_cpu__pins_this_thread),
        cmocka_unit_test(test_cpu__create_survives_failing_allocations),
        cmocka_unit_test(test_cpu__kernels_allocate_only_the_first_time),
        cmocka_unit_test(test_null__has_every_kernel_and_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return on_every_isa(run);
}
