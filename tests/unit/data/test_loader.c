#include "data/loader.h"

#include "device/system/alloc.h"
#include "support/draw.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WIDTH = 3, MAX_TOKENS = 4, N = 1000, WAIT_MS = 20000 };

/* Ragged samples: id has 1 + id % 4 tokens whose elements tell where they come from. A read can be
 * held up, can fail, and can have another shape than promised. */
typedef struct toy {
    bool gated;
    sem_t entered, gate; /* with `gated`: a read posts the one and waits for the other */
    int64_t bad_id;      /* -1: none */
    int64_t liar_id;     /* -1: none */
    atomic_int n_reads;
    sigset_t mask; /* of the thread that read last */
} toy;

static int64_t toy_count(const void *self, fl_split split)
{
    (void)self;
    return split == FL_TRAIN ? N : 10;
}

static fl_status toy_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                           int64_t *n_targets)
{
    const toy *t = self;
    if (id < 0 || id >= toy_count(self, split)) {
        return fl_fail(FL_EINVAL, "no sample %lld", (long long)id);
    }
    *input = (fl_shape){
        .tokens = id == t->liar_id ? MAX_TOKENS + 1 : 1 + id % 4, .width = WIDTH, .dtype = FL_F32};
    *n_targets = 1 + id % 2;
    return FL_OK;
}

static fl_status toy_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    (void)self;
    *input = (fl_shape){.tokens = MAX_TOKENS, .width = WIDTH, .dtype = FL_F32};
    *n_targets = 2;
    return FL_OK;
}

static float element(const fl_sample_key *key, int64_t i)
{
    return (float)(key->id * 16 + i) + 0.5f * (float)key->epoch + (key->augment ? 0.25f : 0.0f);
}

static fl_status toy_read(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    toy *t = (toy *)self;
    (void)split;
    atomic_fetch_add(&t->n_reads, 1);
    if (t->gated) {
        sem_post(&t->entered);
        while (sem_wait(&t->gate) != 0) {
        }
    }
    pthread_sigmask(SIG_SETMASK, NULL, &t->mask);
    if (key->id == t->bad_id) {
        return fl_fail(FL_EIO, "the disk under sample %lld is gone", (long long)key->id);
    }
    for (int64_t i = 0; i < (1 + key->id % 4) * WIDTH; i++) {
        ((float *)input)[i] = element(key, i);
    }
    return FL_OK;
}

static fl_status toy_targets(const void *self, fl_split split, int64_t id, int32_t *targets)
{
    (void)self;
    (void)split;
    for (int64_t i = 0; i < 1 + id % 2; i++) {
        targets[i] = (int32_t)(100 * id + i);
    }
    return FL_OK;
}

static const fl_dataset_ops toy_ops = {
    .head = FL_TABLE_HEAD(fl_dataset_ops),
    .kind = "toy",
    .count = toy_count,
    .shape = toy_shape,
    .max_shape = toy_max_shape,
    .read = toy_read,
    .targets = toy_targets,
};

static toy the_toy;

static int set_up(void **state)
{
    static fl_dataset dataset;
    memset(&the_toy, 0, sizeof the_toy);
    the_toy.bad_id = -1;
    the_toy.liar_id = -1;
    sem_init(&the_toy.entered, 0, 0);
    sem_init(&the_toy.gate, 0, 0);
    dataset = (fl_dataset){.ops = &toy_ops, .self = &the_toy};
    *state = &dataset;
    return 0;
}

/* A loader whose requests may all be as large as can be. */
static fl_status create_equal(const fl_dataset *dataset, int64_t max_samples, int depth,
                              fl_loader **out)
{
    fl_loader_room room;
    FL_TRY(fl_loader_room_equal(dataset, max_samples, depth, &room));
    return fl_loader_create(dataset, &room, out);
}

static fl_loader *make(void **state, int64_t max_samples, int depth)
{
    fl_loader *loader = NULL;
    assert_int_equal(create_equal(*state, max_samples, depth, &loader), FL_OK);
    return loader;
}

static fl_load_request request_of(const int64_t *ids, int64_t n)
{
    return (fl_load_request){.split = FL_TRAIN, .seed = 1, .ids = ids, .n = n};
}

static void assert_samples(const fl_tensor *t, const fl_load_request *r)
{
    assert_int_equal(t->n_samples, r->n);
    assert_int_equal(t->width, WIDTH);
    assert_int_equal(t->dtype, FL_F32);
    assert_int_equal(t->offsets[0], 0);
    assert_int_equal(t->n_tokens, t->offsets[r->n]);
    for (int64_t s = 0; s < r->n; s++) {
        fl_sample_key key = {.epoch = r->epoch, .id = r->ids[s], .augment = r->augment};
        assert_int_equal(t->offsets[s + 1] - t->offsets[s], 1 + key.id % 4);
        for (int64_t i = 0; i < (1 + key.id % 4) * WIDTH; i++) {
            assert_true(fl_f32(t)[t->offsets[s] * WIDTH + i] == element(&key, i));
        }
    }
}

/* Ragged requests of changing size, always `depth` ahead, come out in their order and whole; would
 * catch slots that are mixed up, and ids that are kept by reference. */
static void test_loader__hands_out_in_order(void **state)
{
    enum { MAX = 9, ROUNDS = 500 };
    for (int depth = 1; depth <= 5; depth++) {
        fl_loader *loader = make(state, MAX, depth);
        for (int round = 0; round < ROUNDS + depth; round++) {
            int64_t ids[MAX];
            if (round >= depth) {
                int old = round - depth;
                for (int i = 0; i < MAX; i++) {
                    ids[i] = (old * 7 + i * 13) % N;
                }
                fl_load_request expected = request_of(ids, old % (MAX + 1));
                expected.epoch = old % 3;
                expected.augment = old % 2 == 0;
                fl_tensor t;
                assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
                assert_samples(&t, &expected);
                fl_loader_release(loader);
            }
            for (int i = 0; i < MAX; i++) {
                ids[i] = (round * 7 + i * 13) % N;
            }
            fl_load_request r = request_of(ids, round % (MAX + 1));
            r.epoch = round % 3;
            r.augment = round % 2 == 0;
            assert_int_equal(fl_loader_request(loader, &r), FL_OK);
            memset(ids, 0xFF, sizeof ids);
        }
        fl_loader_destroy(&loader);
        assert_null(loader);
    }
}

/* The requests of a step: ids [IN_A_STEP], of which the first n [M] each. */
enum { M = 4, IN_A_STEP = 24, MOST_TOKENS = 12 };

typedef struct step_ids {
    int64_t ids[M][IN_A_STEP], n[M];
} step_ids;

/* Samples for a step of at most MOST_TOKENS tokens, cut anywhere. */
static void draw_step(step_ids *s)
{
    int64_t tokens = 0;
    memset(s->n, 0, sizeof s->n);
    for (int m = 0; m < M;) {
        int64_t id = draw(0, N - 1);
        if (draw(0, 3) == 0) {
            m++;
        } else if (tokens + 1 + id % 4 <= MOST_TOKENS) {
            s->ids[m][s->n[m]++] = id;
            tokens += 1 + id % 4;
        } else {
            break;
        }
    }
}

/* A ring that holds two steps, and one request more, never stops a caller that is one step ahead,
 * whatever the requests' sizes and wherever the ring ends; and no two requests share a place. */
static void test_loader__reads_two_steps_ahead_in_a_ring_of_their_size(void **state)
{
    enum { STEPS = 2000 };
    static step_ids steps[2];
    fl_loader *loader = NULL;
    fl_loader_room room =
        fl_loader_room_ragged(IN_A_STEP, 2 * M, (int64_t)(3 * MOST_TOKENS * WIDTH * sizeof(float)));
    assert_true(room.n_pieces * room.piece_bytes <
                (size_t)(2 * M * MOST_TOKENS * WIDTH) * sizeof(float) * 2);
    assert_int_equal(fl_loader_create(*state, &room, &loader), FL_OK);
    seed_random();
    for (int step = 0; step <= STEPS; step++) {
        draw_step(&steps[step % 2]);
        for (int m = 0; m < M && step < STEPS; m++) {
            fl_load_request r = request_of(steps[step % 2].ids[m], steps[step % 2].n[m]);
            assert_int_equal(fl_loader_request(loader, &r), FL_OK);
        }
        for (int m = 0; m < M && step > 0; m++) {
            const step_ids *before = &steps[(step + 1) % 2];
            fl_load_request r = request_of(before->ids[m], before->n[m]);
            fl_tensor t;
            assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
            assert_samples(&t, &r);
            fl_loader_release(loader);
        }
    }
    fl_loader_destroy(&loader);
}

/* Stage 0 of a pipeline keeps inputs until their backward: several taken at once stay valid. */
static void test_loader__keeps_what_is_taken_until_released(void **state)
{
    enum { DEPTH = 4 };
    fl_loader *loader = make(state, 2, DEPTH);
    int64_t ids[DEPTH][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}}, more[2] = {9, 10};
    fl_tensor t[DEPTH], last;
    fl_load_request r[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        r[i] = request_of(ids[i], 2);
        assert_int_equal(fl_loader_request(loader, &r[i]), FL_OK);
    }
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(fl_loader_take(loader, WAIT_MS, &t[i]), FL_OK);
    }
    fl_loader_release(loader);
    fl_load_request again = request_of(more, 2);
    assert_int_equal(fl_loader_request(loader, &again), FL_OK);
    assert_int_equal(fl_loader_take(loader, WAIT_MS, &last), FL_OK);
    assert_samples(&last, &again);
    for (int i = 1; i < DEPTH; i++) {
        assert_samples(&t[i], &r[i]);
    }
    fl_loader_destroy(&loader);
}

typedef struct requester {
    fl_loader *loader;
    sem_t begun;
    fl_status status;
} requester;

static void *request_one_more(void *argument)
{
    requester *r = argument;
    int64_t id = 42;
    fl_load_request request = request_of(&id, 1);
    sem_post(&r->begun);
    r->status = fl_loader_request(r->loader, &request);
    return NULL;
}

/* With `depth` requests under way the next one waits, and a release lets it through. */
static void test_request__waits_for_a_release(void **state)
{
    fl_loader *loader = make(state, 1, 2);
    int64_t ids[2] = {10, 11};
    for (int i = 0; i < 2; i++) {
        fl_load_request r = request_of(&ids[i], 1);
        assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    }
    requester other = {.loader = loader, .status = FL_EINTERNAL};
    pthread_t thread;
    sem_init(&other.begun, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, request_one_more, &other), 0);
    sem_wait(&other.begun);
    fl_tensor t;
    for (int i = 0; i < 2; i++) {
        fl_load_request r = request_of(&ids[i], 1);
        assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
        assert_samples(&t, &r);
    }
    fl_loader_release(loader);
    pthread_join(thread, NULL);
    assert_int_equal(other.status, FL_OK);
    int64_t id = 42;
    fl_load_request r = request_of(&id, 1);
    assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
    assert_samples(&t, &r);
    fl_loader_destroy(&loader);
}

/* A deadline that passes leaves the request where it is: it can be taken later. Would also catch: a
 * slow data set that passes for a wait for another worker, who then gets the blame. */
static void test_take__keeps_its_deadline(void **state)
{
    the_toy.gated = true;
    fl_loader *loader = make(state, 1, 1);
    int64_t id = 5;
    fl_load_request r = request_of(&id, 1);
    fl_tensor t;
    assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    static const int64_t timeouts[] = {-1, 0, 1, 20};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(fl_loader_take(loader, timeouts[i], &t), FL_EIO);
    }
    assert_string_equal(fl_errmsg(), "samples were not read within 0.02 s (fault.deadline)");
    sem_post(&the_toy.gate);
    assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
    assert_samples(&t, &r);
    fl_loader_release(loader);
    fl_loader_destroy(&loader);
}

/* take returns the failure of a read, in its turn and with the reader's message. Requests before
 * and after it are not affected, and its memory is free again without a release. */
static void test_take__delivers_the_failure_of_a_read(void **state)
{
    enum { DEPTH = 3, BAD = 77 };
    the_toy.bad_id = BAD;
    fl_loader *loader = make(state, 2, DEPTH);
    for (int round = 0; round < 20; round++) {
        int64_t before[2] = {1, 2}, bad[2] = {3, BAD}, behind[2] = {4, 5};
        fl_load_request r[3] = {request_of(before, 2), request_of(bad, 2), request_of(behind, 2)};
        fl_tensor t, last;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(fl_loader_request(loader, &r[i]), FL_OK);
        }
        assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
        fl_status ignored = fl_fail(FL_EINVAL, "something else went wrong meanwhile");
        (void)ignored;
        assert_int_equal(fl_loader_take(loader, WAIT_MS, &last), FL_EIO);
        assert_string_equal(fl_errmsg(), "the disk under sample 77 is gone");
        assert_int_equal(fl_loader_take(loader, WAIT_MS, &last), FL_OK);
        assert_samples(&t, &r[0]);
        assert_samples(&last, &r[2]);
        fl_loader_release(loader);
        fl_loader_release(loader);
    }
    fl_loader_destroy(&loader);
}

/* A data set that breaks its promise must not write beyond the slot. */
static void test_take__refuses_a_sample_larger_than_promised(void **state)
{
    the_toy.liar_id = 8;
    fl_loader *loader = make(state, 1, 1);
    int64_t id = 8;
    fl_load_request r = request_of(&id, 1);
    fl_tensor t;
    assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "training sample 8 has 5 tokens of width 3, the data set (toy) promised "
                        "at most 4 of width 3 and the same type");
    fl_loader_destroy(&loader);
}

static void test_loader__refuses_impossible_requests(void **state)
{
    fl_loader *loader = NULL;
    assert_int_equal(create_equal(*state, 0, 1, &loader), FL_EINVAL);
    assert_int_equal(create_equal(*state, 1, 0, &loader), FL_EINVAL);
    assert_int_equal(create_equal(*state, INT64_MAX, 1, &loader), FL_EINVAL);
    assert_int_equal(create_equal(*state, INT32_MAX, 1, &loader), FL_EINVAL);
    assert_null(loader);
    loader = make(state, 2, 1);
    int64_t ids[3] = {1, 2, 3};
    fl_tensor t;
    fl_load_request r = request_of(ids, 3);
    assert_int_equal(fl_loader_request(loader, &r), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "a request of 3 samples found, 0 to 2 allowed");
    assert_int_equal(fl_loader_take(loader, 0, &t), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "nothing was requested of the loader");
    fl_loader_release(loader);
    r = request_of(ids, 2);
    assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
    assert_samples(&t, &r);
    fl_loader_destroy(&loader);
    fl_loader_destroy(&loader);
}

static void *open_the_gate(void *argument)
{
    (void)argument;
    sem_wait(&the_toy.entered);
    for (int i = 0; i < 100; i++) {
        sem_post(&the_toy.gate);
    }
    return NULL;
}

/* Destroyed during a read, with requests queued behind it: destroy waits for the current read, and
 * no thread reads afterwards. Would catch: a thread that outlives its memory. In
 * every other round the read has surely begun; in the others it may not have. */
static void test_destroy__while_busy(void **state)
{
    for (int round = 0; round < 50; round++) {
        set_up(state);
        the_toy.gated = true;
        fl_loader *loader = make(state, 8, 4);
        int64_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        fl_load_request r = request_of(ids, 8);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(fl_loader_request(loader, &r), FL_OK);
        }
        if (round % 2 == 0) {
            sem_wait(&the_toy.entered);
            sem_post(&the_toy.entered);
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, open_the_gate, NULL), 0);
        fl_loader_destroy(&loader);
        assert_null(loader);
        int n_reads = atomic_load(&the_toy.n_reads);
        assert_true(n_reads <= 32);
        /* The gate is opened only once a read has begun; had none, open it from here. */
        sem_post(&the_toy.entered);
        pthread_join(thread, NULL);
        assert_int_equal(atomic_load(&the_toy.n_reads), n_reads);
    }
}

static void test_destroy__while_idle(void **state)
{
    for (int round = 0; round < 200; round++) {
        fl_loader *loader = make(state, 1, 1);
        fl_loader_destroy(&loader);
    }
}

/* DESIGN asks for steps that allocate nothing. */
static void test_loader__allocates_nothing_after_create(void **state)
{
    fl_loader *loader = make(state, 16, 3);
    int64_t ids[16];
    uint64_t before = fl_alloc_count();
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 16; i++) {
            ids[i] = (round + i) % N;
        }
        fl_load_request r = request_of(ids, 16);
        fl_tensor t;
        assert_int_equal(fl_loader_request(loader, &r), FL_OK);
        assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
        fl_loader_release(loader);
    }
    assert_int_equal(fl_alloc_count(), before);
    fl_loader_destroy(&loader);
}

/* A signal for the process must find the main thread, or Ctrl-C would be lost in a read. */
static void test_loader__blocks_signals_in_its_thread(void **state)
{
    fl_loader *loader = make(state, 1, 1);
    sigset_t mine;
    int64_t id = 1;
    fl_load_request r = request_of(&id, 1);
    fl_tensor t;
    assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE, SIGUSR1};
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        assert_int_equal(sigismember(&the_toy.mask, signals[i]), 1);
        assert_int_equal(sigismember(&mine, signals[i]), 0);
    }
    fl_loader_destroy(&loader);
}

/* In a child: exit code 0 if samples come out right. */
static int read_some(void **state)
{
    fl_loader *loader = NULL;
    fl_tensor t;
    int64_t ids[3] = {7, 8, 9};
    fl_load_request r = request_of(ids, 3);
    if (create_equal(*state, 3, 2, &loader) != FL_OK || fl_loader_request(loader, &r) != FL_OK ||
        fl_loader_take(loader, WAIT_MS, &t) != FL_OK) {
        return 1;
    }
    bool right = t.n_samples == 3 && t.n_tokens == 4 + 1 + 2 &&
                 fl_f32(&t)[0] == element(&(fl_sample_key){.id = 7}, 0);
    fl_loader_destroy(&loader);
    return right ? 0 : 2;
}

/* Workers are forks: each makes its own loader over the data set that it was born with. */
static void test_loader__works_in_each_fork(void **state)
{
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            alarm(60);
            _exit(read_some(state));
        }
    }
    for (int i = 0; i < 3; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(read_some(state), 0);
}

/* Reading allocates nothing: all memory of a loader is there from its beginning on. */
static void test_loader__allocates_only_when_created(void **state)
{
    int64_t ids[3] = {1, 2, 3};
    fl_tensor t;
    fl_loader *loader = make(state, 3, 2);
    uint64_t before = fl_alloc_count();
    for (int i = 0; i < 5; i++) {
        fl_load_request request = {.split = FL_TRAIN, .ids = ids, .n = 3};
        assert_int_equal(fl_loader_request(loader, &request), FL_OK);
        assert_int_equal(fl_loader_take(loader, 1000, &t), FL_OK);
        fl_loader_release(loader);
    }
    assert_int_equal(fl_alloc_count(), before);
    fl_loader_destroy(&loader);
}

static void test_loader__survives_every_failed_allocation(void **state)
{
    fl_device *device = NULL;
    fl_loader *loader = NULL;
    fl_status status = FL_ENOMEM;
    int n = 0;
    fl_loader_room room;
    assert_int_equal(fl_device_cpu_create(1, NULL, 1000, &device), FL_OK);
    assert_int_equal(fl_loader_room_equal(*state, 10, 2, &room), FL_OK);
    room.device = device;
    while (status == FL_ENOMEM) {
        fl_alloc_fail_at((uint64_t)++n);
        status = fl_loader_create(*state, &room, &loader);
    }
    fl_alloc_fail_at(0);
    assert_int_equal(status, FL_OK);
    assert_true(n > 3); /* the loader, its ring, an event for each slot */
    fl_loader_destroy(&loader);
    fl_device_destroy(&device);
}

/* A device that copies as late as it may: when its event is waited for. */
static struct {
    float copy[MAX_TOKENS * WIDTH];
    const void *from;
    bool host_memory_asked; /* that copies run at full speed with */
} late;

static fl_status copy_late(fl_device *d, fl_event *event)
{
    (void)d, (void)event;
    if (late.from != NULL) {
        memcpy(late.copy, late.from, sizeof late.copy);
        late.from = NULL;
    }
    return FL_OK;
}

static fl_status host_take(fl_device *d, size_t size_bytes, void **out)
{
    (void)d;
    late.host_memory_asked = true;
    return fl_alloc(size_bytes, out);
}

static void test_release_after__keeps_samples_until_they_were_copied(void **state)
{
    fl_device *device = NULL;
    fl_loader *loader = NULL;
    fl_loader_room room;
    fl_tensor t;
    const int64_t first = 3, second = 7; /* 4 tokens each */
    fl_load_request one = request_of(&first, 1), other = request_of(&second, 1);
    assert_int_equal(fl_device_cpu_create(1, NULL, 1000, &device), FL_OK);
    const fl_device_ops *cpu = device->ops;
    fl_device_ops ops = *cpu;
    ops.host_memory = false;
    ops.host_take = host_take;
    ops.event_wait = copy_late;
    device->ops = &ops;
    memset(&late, 0, sizeof late);
    assert_int_equal(fl_loader_room_equal(*state, 1, 1, &room), FL_OK);
    room.device = device;
    assert_int_equal(fl_loader_create(*state, &room, &loader), FL_OK);
    assert_true(late.host_memory_asked);
    assert_int_equal(fl_loader_request(loader, &one), FL_OK);
    assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
    late.from = t.data;
    assert_int_equal(fl_loader_release_after(loader, NULL), FL_OK);
    assert_int_equal(fl_loader_request(loader, &other), FL_OK); /* does not wait for the copy */
    assert_int_equal(fl_loader_take(loader, WAIT_MS, &t), FL_OK);
    assert_samples(&t, &other);
    t.data = late.copy;
    assert_samples(&t, &one);
    fl_loader_destroy(&loader);
    device->ops = cpu;
    fl_device_destroy(&device);
}

static void test_targets__are_ragged(void **state)
{
    int64_t ids[3] = {4, 7, 2};
    int32_t data[4], offsets[4];
    const int32_t expected[4] = {400, 700, 701, 200}, places[4] = {0, 1, 3, 4};
    fl_tensor t;
    assert_int_equal(fl_load_targets(*state, FL_TRAIN, ids, 3, data, 4, offsets, &t), FL_OK);
    assert_memory_equal(data, expected, sizeof data);
    assert_memory_equal(offsets, places, sizeof offsets);
    assert_int_equal(t.n_samples, 3);
    assert_int_equal(t.n_tokens, 4);
    assert_int_equal(t.width, 1);
    assert_int_equal(t.dtype, FL_I32);
    assert_int_equal(fl_load_targets(*state, FL_TRAIN, ids, 3, data, 3, offsets, &t), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "the 1 targets of training sample 2 do not fit: 3 of 3 in use");
    ids[1] = N;
    assert_int_equal(fl_load_targets(*state, FL_TRAIN, ids, 3, data, 4, offsets, &t), FL_EINVAL);
    assert_int_equal(fl_load_targets(*state, FL_TRAIN, ids, 0, data, 0, offsets, &t), FL_OK);
    assert_int_equal(t.n_tokens, 0);
}

static fl_status half_targets(const void *self, fl_split split, int64_t id, float *targets)
{
    int32_t classes[2] = {0};
    (void)split;
    FL_TRY(toy_targets(self, split, id, classes));
    targets[0] = (float)classes[0] + 0.5f;
    return FL_OK;
}

static void test_targets__may_be_values(void **state)
{
    const fl_dataset *set = *state;
    fl_dataset_ops ops = *set->ops;
    const fl_dataset data = {.ops = &ops, .self = set->self};
    const int64_t ids[2] = {4, 2};
    float values[2];
    int32_t offsets[3];
    fl_tensor t;
    ops.targets = NULL;
    ops.targets_f32 = half_targets;
    assert_int_equal(fl_load_targets(&data, FL_TRAIN, ids, 2, values, 2, offsets, &t), FL_OK);
    assert_int_equal(t.dtype, FL_F32);
    assert_true(fl_f32(&t)[0] == 400.5f && fl_f32(&t)[1] == 200.5f);
    assert_int_equal(fl_targets_check(&ops), FL_OK);
    ops.targets = set->ops->targets;
    assert_int_equal(fl_targets_check(&ops), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "targets and targets_f32 found, allowed: targets or "));
    ops.targets = NULL;
    ops.targets_f32 = NULL;
    assert_int_equal(fl_targets_check(&ops), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "no targets found, allowed: targets or targets_f32"));
}

int main(void)
{
#define TOY(test) cmocka_unit_test_setup(test, set_up)
    const struct CMUnitTest tests[] = {
        TOY(test_loader__hands_out_in_order),
        TOY(test_loader__reads_two_steps_ahead_in_a_ring_of_their_size),
        TOY(test_loader__keeps_what_is_taken_until_released),
        TOY(test_request__waits_for_a_release),
        TOY(test_take__keeps_its_deadline),
        TOY(test_take__delivers_the_failure_of_a_read),
        TOY(test_take__refuses_a_sample_larger_than_promised),
        TOY(test_loader__refuses_impossible_requests),
        TOY(test_destroy__while_busy),
        TOY(test_destroy__while_idle),
        TOY(test_loader__allocates_nothing_after_create),
        TOY(test_loader__blocks_signals_in_its_thread),
        TOY(test_loader__works_in_each_fork),
        TOY(test_loader__allocates_only_when_created),
        TOY(test_loader__survives_every_failed_allocation),
        TOY(test_release_after__keeps_samples_until_they_were_copied),
        TOY(test_targets__are_ragged),
        TOY(test_targets__may_be_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
