/* The set of objects that another thread may abort. Would catch: an abort that misses an object
 * which joins the set at the same moment or later; one that reaches another generation, or an
 * object that has left the set. */
#include "autodp/net/abort_set.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct fake_net {
    fl_abortable abortable;
    atomic_int why, n_aborts;
} fake_net;

static void note_abort(void *self, fl_status why)
{
    fake_net *net = self;
    atomic_store(&net->why, why);
    atomic_fetch_add(&net->n_aborts, 1);
}

static void init_net(fake_net *net, uint32_t generation)
{
    memset(net, 0, sizeof *net);
    net->abortable.generation = generation;
    net->abortable.self = net;
    net->abortable.abort = note_abort;
}

static void test_abort_set__reaches_one_generation(void **state)
{
    (void)state;
    fl_abort_set set = FL_ABORT_SET_INIT;
    fake_net nets[4];
    for (uint32_t i = 0; i < 4; i++) {
        init_net(&nets[i], i % 2);
        assert_int_equal(fl_abort_set_add(&set, &nets[i].abortable), FL_OK);
    }
    fl_abort_set_abort(&set, 1, FL_ESTALE);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(nets[i].n_aborts, i % 2);
        assert_int_equal(nets[i].why, i % 2 == 1 ? FL_ESTALE : FL_OK);
    }
    assert_int_equal(fl_abort_set_check(&set, 0), FL_OK);
    assert_int_equal(fl_abort_set_check(&set, 1), FL_ESTALE);
    assert_string_equal(fl_errmsg(), "the controller ended generation 1");
    fl_abort_set_abort_all(&set, FL_EPEER);
    assert_int_equal(nets[0].why, FL_EPEER);
    assert_int_equal(nets[2].n_aborts, 1);
    assert_int_equal(fl_abort_set_check(&set, 7), FL_EPEER);
}

/* A net that begins to open after its generation was cancelled must not wait for its peers. */
static void test_abort_set__refuses_what_joins_later(void **state)
{
    (void)state;
    fl_abort_set set = FL_ABORT_SET_INIT;
    fake_net late, other;
    init_net(&late, 5);
    init_net(&other, 6);
    fl_abort_set_abort(&set, 5, FL_ESTALE);
    fl_abort_set_abort(&set, 5, FL_EPEER); /* the first reason stays */
    assert_int_equal(fl_abort_set_add(&set, &late.abortable), FL_ESTALE);
    assert_int_equal(fl_abort_set_add(&set, &other.abortable), FL_OK);
    fl_abort_set_remove(&set, &late.abortable); /* never came in */
    assert_ptr_equal(set.first, &other.abortable);
    assert_int_equal(late.n_aborts, 0);
    for (uint32_t g = 7; g < 7 + FL_ABORT_SET_MEMORY; g++) {
        fl_abort_set_abort(&set, g, FL_ESTALE);
        assert_int_equal(fl_abort_set_check(&set, g), FL_ESTALE);
    }
    assert_int_equal(fl_abort_set_check(&set, 6), FL_OK);
}

/* After a loss, all that was open or being opened ends, and only that. */
static void test_abort_set__reaches_generations_up_to_one(void **state)
{
    (void)state;
    fl_abort_set set = FL_ABORT_SET_INIT;
    fake_net nets[5], late;
    for (uint32_t i = 0; i < 5; i++) {
        init_net(&nets[i], i);
        assert_int_equal(fl_abort_set_add(&set, &nets[i].abortable), FL_OK);
    }
    fl_abort_set_abort_until(&set, 2, FL_EPEER);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(nets[i].n_aborts, i <= 2);
    }
    init_net(&late, 2);
    assert_int_equal(fl_abort_set_add(&set, &late.abortable), FL_EPEER);
    assert_int_equal(fl_abort_set_check(&set, 2), FL_EPEER);
    assert_int_equal(fl_abort_set_check(&set, 3), FL_OK);
    fl_abort_set_abort_until(&set, 3, FL_EPEER);
    assert_int_equal(nets[3].n_aborts, 1);
    assert_int_equal(nets[4].n_aborts, 0);
    fl_abort_set_abort_until(&set, 1, FL_EPEER); /* an older order changes nothing */
    assert_int_equal(fl_abort_set_check(&set, 3), FL_EPEER);
    assert_int_equal(fl_abort_set_check(&set, 4), FL_OK);
}

/* First, middle and last of the list, in every order. */
static void test_abort_set__leaves_alone_what_has_left(void **state)
{
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int o = 0; o < 6; o++) {
        fl_abort_set set = FL_ABORT_SET_INIT;
        fake_net nets[3];
        for (int i = 0; i < 3; i++) {
            init_net(&nets[i], 1);
            assert_int_equal(fl_abort_set_add(&set, &nets[i].abortable), FL_OK);
        }
        for (int n_left = 2; n_left >= 0; n_left--) {
            fl_abort_set_remove(&set, &nets[orders[o][2 - n_left]].abortable);
            fl_abort_set_abort(&set, 1, FL_ESTALE);
        }
        assert_null(set.first);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(nets[orders[o][i]].n_aborts, i);
        }
    }
}

enum { N_THREADS = 4, N_ROUNDS = 20000 };

static struct {
    fl_abort_set set;
    atomic_int n_missed;
} shared = {.set = FL_ABORT_SET_INIT};

/* Open and close nets of generation 1 until it is aborted: the abort must reach the net that is
 * open then, or the next one that joins. */
static void *open_and_close(void *unused)
{
    (void)unused;
    for (int i = 0;; i++) {
        fake_net net;
        init_net(&net, 1);
        if (fl_abort_set_add(&shared.set, &net.abortable) != FL_OK) {
            return NULL;
        }
        bool before = fl_abort_set_check(&shared.set, 1) != FL_OK;
        fl_abort_set_remove(&shared.set, &net.abortable);
        if (before && atomic_load(&net.n_aborts) == 0) {
            atomic_fetch_add(&shared.n_missed, 1);
        }
    }
}

static void test_abort_set__serves_several_threads(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
    }
    for (int i = 0; i < N_ROUNDS; i++) {
        assert_int_equal(fl_abort_set_check(&shared.set, 1), FL_OK);
    }
    fl_abort_set_abort(&shared.set, 1, FL_ESTALE);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_null(shared.set.first);
    assert_int_equal(shared.n_missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort_set__reaches_one_generation),
        cmocka_unit_test(test_abort_set__refuses_what_joins_later),
        cmocka_unit_test(test_abort_set__reaches_generations_up_to_one),
        cmocka_unit_test(test_abort_set__leaves_alone_what_has_left),
        cmocka_unit_test(test_abort_set__serves_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
