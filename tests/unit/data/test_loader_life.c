/* A loader from its creation to its end: its thread, its memory, forks, and the device that copies
 * from it. */
#include "data/loader.h"

#include "device/system/alloc.h"
#include "support/data/loader_toy.h"

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

static void *open_the_gate(void *argument)
{
    (void)argument;
    sem_wait(&loader_toy.entered);
    for (int i = 0; i < 100; i++) {
        sem_post(&loader_toy.gate);
    }
    return NULL;
}

/* Destroyed during a read, with requests queued behind it: destroy waits for the current read, and
 * no thread reads afterwards. Would catch: a thread that outlives its memory. In
 * every other round the read has surely begun; in the others it may not have. */
static void test_destroy__while_busy(void **state)
{
    for (int round = 0; round < 50; round++) {
        loader_set_up(state);
        loader_toy.gated = true;
        fl_loader *loader = loader_make(state, 8, 4);
        int64_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        fl_load_request r = loader_request(ids, 8);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(fl_loader_request(loader, &r), FL_OK);
        }
        if (round % 2 == 0) {
            sem_wait(&loader_toy.entered);
            sem_post(&loader_toy.entered);
        }
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, open_the_gate, NULL), 0);
        fl_loader_destroy(&loader);
        assert_null(loader);
        int n_reads = atomic_load(&loader_toy.n_reads);
        assert_true(n_reads <= 32);
        /* The gate is opened only once a read has begun; had none, open it from here. */
        sem_post(&loader_toy.entered);
        pthread_join(thread, NULL);
        assert_int_equal(atomic_load(&loader_toy.n_reads), n_reads);
    }
}

static void test_destroy__while_idle(void **state)
{
    for (int round = 0; round < 200; round++) {
        fl_loader *loader = loader_make(state, 1, 1);
        fl_loader_destroy(&loader);
    }
}

/* DESIGN asks for steps that allocate nothing. */
static void test_loader__allocates_nothing_after_create(void **state)
{
    fl_loader *loader = loader_make(state, 16, 3);
    int64_t ids[16];
    uint64_t before = fl_alloc_count();
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 16; i++) {
            ids[i] = (round + i) % LOADER_SAMPLES;
        }
        fl_load_request r = loader_request(ids, 16);
        fl_tensor t;
        assert_int_equal(fl_loader_request(loader, &r), FL_OK);
        assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
        fl_loader_release(loader);
    }
    assert_int_equal(fl_alloc_count(), before);
    fl_loader_destroy(&loader);
}

/* A signal for the process must find the main thread, or Ctrl-C would be lost in a read. */
static void test_loader__blocks_signals_in_its_thread(void **state)
{
    fl_loader *loader = loader_make(state, 1, 1);
    sigset_t mine;
    int64_t id = 1;
    fl_load_request r = loader_request(&id, 1);
    fl_tensor t;
    assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE, SIGUSR1};
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        assert_int_equal(sigismember(&loader_toy.mask, signals[i]), 1);
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
    fl_load_request r = loader_request(ids, 3);
    if (loader_create(*state, 3, 2, &loader) != FL_OK || fl_loader_request(loader, &r) != FL_OK ||
        fl_loader_take(loader, LOADER_WAIT_MS, &t) != FL_OK) {
        return 1;
    }
    bool right = t.n_samples == 3 && t.n_tokens == 4 + 1 + 2 &&
                 fl_f32(&t)[0] == loader_element(&(fl_sample_key){.id = 7}, 0);
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
    fl_loader *loader = loader_make(state, 3, 2);
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
    float copy[LOADER_TOKENS * LOADER_WIDTH];
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
    fl_load_request one = loader_request(&first, 1), other = loader_request(&second, 1);
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
    assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
    late.from = t.data;
    assert_int_equal(fl_loader_release_after(loader, NULL), FL_OK);
    assert_int_equal(fl_loader_request(loader, &other), FL_OK); /* does not wait for the copy */
    assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
    loader_assert(&t, &other);
    t.data = late.copy;
    loader_assert(&t, &one);
    fl_loader_destroy(&loader);
    device->ops = cpu;
    fl_device_destroy(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_destroy__while_busy, loader_set_up),
        cmocka_unit_test_setup(test_destroy__while_idle, loader_set_up),
        cmocka_unit_test_setup(test_loader__allocates_nothing_after_create, loader_set_up),
        cmocka_unit_test_setup(test_loader__blocks_signals_in_its_thread, loader_set_up),
        cmocka_unit_test_setup(test_loader__works_in_each_fork, loader_set_up),
        cmocka_unit_test_setup(test_loader__allocates_only_when_created, loader_set_up),
        cmocka_unit_test_setup(test_loader__survives_every_failed_allocation, loader_set_up),
        cmocka_unit_test_setup(test_release_after__keeps_samples_until_they_were_copied,
                               loader_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
