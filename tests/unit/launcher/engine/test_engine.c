/* What engines say in the environment: would catch a task that takes itself for another one, two
 * starts that meet, tasks that share a host, and lists of hosts that are read in another order than
 * Slurm's. */
#include "launcher/engine/engine.h"
#include "launcher/engine/pmi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* "NAME=value", ended by NULL. */
static const char *look_up(void *context, const char *name)
{
    size_t length = strlen(name);
    for (const char *const *v = context; *v != NULL; v++) {
        if (strncmp(*v, name, length) == 0 && (*v)[length] == '=') {
            return *v + length + 1;
        }
    }
    return NULL;
}

static fl_status find_on(const char *const *variables, const char *hostname, fl_engine_task *task)
{
    return fl_engine_find(look_up, (void *)(uintptr_t)variables, hostname, task);
}

static fl_status find(const char *const *variables, fl_engine_task *task)
{
    return find_on(variables, "box", task);
}

#define SLURM                                                                                      \
    "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_NUM_NODES=2",   \
        "SLURM_STEP_NUM_TASKS=2", "SLURM_CPUS_ON_NODE=8"
#define OPEN_MPI                                                                                   \
    "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_LOCAL_SIZE=1", "PMIX_NAMESPACE=prte@1", "PMIX_RANK=2"

static void test_engine__slurm_names_hosts_and_processors(void **state)
{
    (void)state;
    fl_engine_task task;
    assert_int_equal(find((const char *[]){SLURM, "SLURM_PROCID=1", "SLURM_NODEID=1",
                                           "SLURM_RESTART_COUNT=2", "SLURMD_NODENAME=n2", NULL},
                          &task),
                     FL_OK);
    assert_string_equal(task.engine, "Slurm");
    assert_true(task.rank == 1 && task.n == 2 && task.cpus == 8);
    assert_string_equal(task.host, "n2");
    assert_string_equal(task.nodes, "n[1-2]");
    assert_string_equal(task.start, "7-0-2");
    assert_int_equal(find((const char *[]){SLURM, "SLURM_PROCID=0", "SLURM_NODEID=0", NULL}, &task),
                     FL_OK);
    assert_string_equal(task.host, "n1"); /* of the list */
    assert_string_equal(task.start, "7-0-0");
}

static void test_engine__mpirun_tells_hosts_apart_by_rank(void **state)
{
    (void)state;
    fl_engine_task task;
    assert_int_equal(find((const char *[]){OPEN_MPI, "OMPI_COMM_WORLD_RANK=2", NULL}, &task),
                     FL_OK);
    assert_string_equal(task.engine, "Open MPI");
    assert_true(task.rank == 2 && task.n == 3 && task.cpus == 0 && task.nodes == NULL);
    assert_string_equal(task.host, "box-2");
    assert_string_equal(task.start, "prte-1-0");
    assert_int_equal(find((const char *[]){"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=1",
                                           "FROSTLINE_START=x/y", NULL},
                          &task),
                     FL_OK);
    assert_string_equal(task.engine, "MPICH");
    assert_string_equal(task.start, "x-y");
    assert_string_equal(task.host, "box-1");
    assert_int_equal(
        find((const char *[]){"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=1",
                              "MPIR_CVAR_CH3_INTERFACE_HOSTNAME=n2", "FROSTLINE_START=x", NULL},
             &task),
        FL_OK);
    assert_string_equal(task.host, "n2"); /* as mpiexec knows it */
    fl_engine_name_by_address(&task, "10.0.0.2");
    assert_string_equal(task.host, "n2");
}

/* mpiexec of MPICH with -iface gives no names, and neither does Open MPI. Would catch: hosts of one
 * hostname, as virtual machines have, that nobody can tell apart. */
static void test_engine__hosts_without_a_name_have_their_address(void **state)
{
    (void)state;
    fl_engine_task task;
    static const char *const mpich[] = {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=1",
                                        "FROSTLINE_START=x", NULL};
    assert_int_equal(find(mpich, &task), FL_OK);
    assert_string_equal(task.host, "box-1");
    fl_engine_name_by_address(&task, "10.0.0.2");
    assert_string_equal(task.host, "box-10.0.0.2");
    fl_engine_name_by_address(&task, "fe80::1"); /* no name of a host */
    assert_string_equal(task.host, "box-10.0.0.2");
    char longest[FL_ENGINE_TEXT] = "";
    memset(longest, 'h', FL_ENGINE_TEXT - 1);
    assert_int_equal(find_on(mpich, longest, &task), FL_OK);
    assert_string_equal(task.host + task.n_hostname, "-1");
    fl_engine_name_by_address(&task, "255.255.255.255");
    assert_string_equal(task.host + task.n_hostname, "-255.255.255.255");
}

/* Hydra as it answers a task of MPICH. Would catch: a start that no user has named and that is
 * refused, an answer that is too long, a wait for one that does not come, and a connection that
 * stays open. */
static void test_engine__mpich_names_the_start_when_it_is_asked(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *name;
    } cases[] = {{"cmd=my_kvsname kvsname=kvs_7_0_48_box\n", "kvs_7_0_48_box"},
                 {"cmd=my_kvsname kvsname=k rc=0\n", "k"},
                 {"cmd=my_kvsname rc=-1\n", NULL},
                 {"cmd=my_kvsname kvsname=0123456789012345678901234567890123456789\n", NULL},
                 {"cmd=my_kvsname kvsname=cut", NULL}};
    char question[65], name[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        size_t n = strlen(cases[i].answer);
        assert_int_equal(write(ends[1], cases[i].answer, n), n);
        shutdown(ends[1], SHUT_WR);
        bool known = fl_pmi_ask_start(ends[0], name, sizeof name);
        assert_int_equal(known, cases[i].name != NULL);
        assert_true(!known || strcmp(name, cases[i].name) == 0);
        ssize_t asked = read(ends[1], question, sizeof question - 1);
        question[asked < 0 ? 0 : asked] = '\0';
        assert_string_equal(question, "cmd=get_my_kvsname\ncmd=finalize\n");
        assert_int_equal(read(ends[1], question, 1), 0); /* closed */
        close(ends[1]);
    }
}

/* Would catch: a name that becomes part of a path, and is no name of a host. */
static void test_engine__a_host_with_a_name_that_cannot_be_is_named_by_its_rank(void **state)
{
    (void)state;
    fl_engine_task task;
    const char *const bad[] = {SLURM, "SLURM_PROCID=1", "SLURM_NODEID=1", "SLURMD_NODENAME=../n2",
                               NULL};
    assert_int_equal(find(bad, &task), FL_OK);
    assert_string_equal(task.host, "box-1");
    assert_int_equal(fl_engine_find(look_up, (void *)(uintptr_t)bad, "a/b", &task), FL_OK);
    assert_string_equal(task.host, "host-1");
}

/* mpirun within a job of Slurm: its tasks have the variables of the step that started its daemon.
 */
static void test_engine__the_inner_engine_counts(void **state)
{
    (void)state;
    fl_engine_task task;
    assert_int_equal(find((const char *[]){SLURM, "SLURM_PROCID=0", "SLURM_NODEID=0", OPEN_MPI,
                                           "OMPI_COMM_WORLD_RANK=1", NULL},
                          &task),
                     FL_OK);
    assert_string_equal(task.engine, "Open MPI");
}

/* A shell of salloc, a script of sbatch, and a step of one task. */
static void test_engine__one_task_is_an_ordinary_run(void **state)
{
    (void)state;
    fl_engine_task task;
    assert_int_equal(find((const char *[]){NULL}, &task), FL_OK);
    assert_true(task.engine == NULL && task.n == 1);
    assert_int_equal(find((const char *[]){"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=2",
                                           "SLURM_JOB_NODELIST=n[1-2]", NULL},
                          &task),
                     FL_OK);
    assert_true(task.engine == NULL && task.n == 1);
    assert_int_equal(
        find((const char *[]){"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1", NULL}, &task), FL_OK);
    assert_true(task.engine == NULL && task.n == 1);
}

static void test_engine__refuses_what_cannot_be(void **state)
{
    (void)state;
    static const struct {
        const char *variables[12];
        const char *message;
    } bad[] = {
        {{SLURM, "SLURM_PROCID=2", "SLURM_NODEID=0"}, "SLURM_PROCID: found 2, allowed: less than"},
        {{SLURM, "SLURM_PROCID=one", "SLURM_NODEID=0"}, "SLURM_PROCID: found 'one', allowed: an "},
        {{SLURM, "SLURM_NODEID=0"}, "SLURM_PROCID: found nothing"},
        {{SLURM, "SLURM_PROCID=0", "SLURM_NODEID=5"}, "SLURM_STEP_NODELIST: found 'n[1-2]'"},
        {{"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2", "SLURM_PROCID=0"},
         "several of them on one host; allowed: one task on each host (srun --ntasks-per-node=1)"},
        {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
         "(mpirun --map-by ppr:1:node)"},
        {{"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=1"}, "FROSTLINE_START: found nothing"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fl_engine_task task;
        assert_int_equal(find(bad[i].variables, &task), FL_EINVAL);
        if (strstr(fl_errmsg(), bad[i].message) == NULL) {
            fail_msg("case %zu: %s", i, fl_errmsg());
        }
    }
}

/* ---- lists of hosts ---- */

static void test_engine__expands_lists_as_scontrol_does(void **state)
{
    (void)state;
    static const struct {
        const char *list, *names; /* with spaces */
    } good[] = {
        {"n1", "n1"},
        {"a,b,a", "a b a"},
        {"n[1-3]", "n1 n2 n3"},
        {"n[1-2,7,09-11]x", "n1x n2x n7x n09x n10x n11x"},
        {"tux[8-10],login,gpu[001-002]", "tux8 tux9 tux10 login gpu001 gpu002"},
        {"r[1-2]n[08-09]", "r1n08 r1n09 r2n08 r2n09"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char all[256] = "", name[FL_ENGINE_TEXT];
        int n = fl_node_list_count(good[i].list);
        for (int k = 0, used = 0; k < n; k++) {
            assert_true(fl_node_list_get(good[i].list, k, name));
            used +=
                snprintf(all + used, sizeof all - (size_t)used, "%s%s", k == 0 ? "" : " ", name);
        }
        assert_string_equal(all, good[i].names);
        assert_false(fl_node_list_get(good[i].list, n, name));
    }
}

static void test_engine__refuses_malformed_lists(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        ",",
        "a,",
        ",a",
        "a,,b",
        "n[",
        "n[]",
        "n[1",
        "n[1-",
        "n[1-]",
        "n[-1]",
        "n[3-1]",
        "n]",
        "n[1]]",
        "n[1,]",
        "n[a]",
        "n[[1",
        "n[1[2]",
        "n[1,2-",
        "n[0-99999999]",
        "n[1234567890]",
        "n[0-999999]m[0-999999]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char name[FL_ENGINE_TEXT];
        if (fl_node_list_count(bad[i]) != -1 || fl_node_list_get(bad[i], 0, name)) {
            fail_msg("'%s' is accepted", bad[i]);
        }
    }
    char longest[100], name[FL_ENGINE_TEXT];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_false(fl_node_list_get(longest, 0, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine__slurm_names_hosts_and_processors),
        cmocka_unit_test(test_engine__mpirun_tells_hosts_apart_by_rank),
        cmocka_unit_test(test_engine__hosts_without_a_name_have_their_address),
        cmocka_unit_test(test_engine__mpich_names_the_start_when_it_is_asked),
        cmocka_unit_test(test_engine__a_host_with_a_name_that_cannot_be_is_named_by_its_rank),
        cmocka_unit_test(test_engine__the_inner_engine_counts),
        cmocka_unit_test(test_engine__one_task_is_an_ordinary_run),
        cmocka_unit_test(test_engine__refuses_what_cannot_be),
        cmocka_unit_test(test_engine__expands_lists_as_scontrol_does),
        cmocka_unit_test(test_engine__refuses_malformed_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
