/* NCCL as a file that is loaded, and tried before that. Catches a library that is missing, of
 * another version or not complete, and is not refused with one line that names the reason. */
#include "autodp/nccl/library.h"
#include "autodp/nccl/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char standin[] = FL_BINARY_DIR "/tests/nccl_standin.so";

/* In a process of its own, since a library reads its environment once. Returns the message; "": it
 * was loaded. */
static const char *load(const char *file, const char *options, char text[512])
{
    int pipes[2];
    fl_nccl nccl;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("FROSTLINE_NCCL", file, 1);
        setenv("FROSTLINE_NCCL_STANDIN", options, 1);
        const char *message = fl_nccl_load(&nccl) == FL_OK ? "" : fl_errmsg();
        _exit(write(pipes[1], message, strlen(message)) < 0 ? 1 : 0);
    }
    close(pipes[1]);
    ssize_t n = read(pipes[0], text, 511);
    close(pipes[0]);
    text[n < 0 ? 0 : n] = '\0';
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return text;
}

static void test_nccl_load__finds_every_function(void **state)
{
    (void)state;
    char text[512];
    assert_string_equal(load(standin, "", text), "");
    assert_string_equal(load(standin, "version=21801", text), "");
    assert_string_equal(load(standin, "version=23007", text), "");
}

static void test_nccl_load__refuses_other_versions(void **state)
{
    (void)state;
    char text[512];
    static const struct {
        const char *option, *version;
    } cases[] = {{"version=2804", " has version 2.8.4; allowed are 2.18.1 and later versions"},
                 {"version=21703", " has version 2.17.3; allowed"},
                 {"version=21800", " has version 2.18.0; allowed"},
                 {"version=30000", " has version 3.0.0; allowed"},
                 {"fail=GetVersion:1", " does not tell its version: internal error"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load(standin, cases[i].option, text);
        if (strncmp(text, "NCCL cannot be used: ", 21) != 0 ||
            strstr(text, cases[i].version) == NULL || strchr(text, '\n') != NULL) {
            fail_msg("%s: '%s'", cases[i].option, text);
        }
    }
}

static void test_nccl_load__refuses_a_file_that_is_not_nccl(void **state)
{
    (void)state;
    char text[512];
    load(FL_BINARY_DIR "/tests/plugin_empty.so", "", text);
    assert_non_null(strstr(text, "plugin_empty.so has no function ncclGetVersion"));
    load("/nowhere/libnccl.so.2", "", text);
    assert_int_equal(strncmp(text, "NCCL cannot be loaded: /nowhere/libnccl.so.2: ", 46), 0);
    assert_null(strchr(text, '\n'));
    load("/proc", "", text); /* a pipe would make dlopen wait */
    assert_string_equal(text, "NCCL cannot be loaded: /proc: not a regular file");
}

static int cuda_of(const char *text)
{
    return fl_nccl_cuda_of(text, strlen(text));
}

/* Catches a library for a newer CUDA that is asked for an id, and a file that is read past its end.
 */
static void test_nccl_load__asks_whether_the_driver_suits(void **state)
{
    (void)state;
    assert_int_equal(cuda_of("\n\1NCCL version 2.28.9+cuda13.0"), 13000);
    assert_int_equal(cuda_of("NCCL version %s NCCL version 2.18.1+cuda11.8\n"), 11080);
    assert_int_equal(cuda_of("NCCL version 2.28.9+cuda"), 0);
    assert_int_equal(cuda_of("NCCL version "), 0);
    assert_int_equal(cuda_of("CUDA 13.0"), 0);
    fl_nccl nccl;
    setenv("FROSTLINE_NCCL", standin, 1); /* which names CUDA 13.0 */
    assert_int_equal(fl_nccl_load(&nccl), FL_OK);
    assert_int_equal(fl_nccl_check_driver(&nccl, 0), FL_OK); /* a device without a driver */
    assert_int_equal(fl_nccl_check_driver(&nccl, 13000), FL_OK);
    assert_int_equal(fl_nccl_check_driver(&nccl, 14010), FL_OK);
    assert_int_equal(fl_nccl_check_driver(&nccl, 12080), FL_ENOTSUP);
    if (strstr(fl_errmsg(), "was built with CUDA 13.0, the driver runs CUDA up to 12.8;") == NULL) {
        fail_msg("'%s'", fl_errmsg());
    }
}

/* ---- in a process of its own ---- */

/* A copy of the stand-in without what lies behind these bytes. */
static void cut_short(const char *path, size_t size_bytes)
{
    char bytes[20000];
    int from = open(standin, O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(from >= 0 && to >= 0 && size_bytes <= sizeof bytes);
    assert_int_equal(read(from, bytes, size_bytes), size_bytes);
    assert_int_equal(write(to, bytes, size_bytes), size_bytes);
    close(from);
    close(to);
}

typedef struct trial_case {
    const char *file, *options;
    int driver_version;
    const char *reason; /* a part of it; NULL: it can be used */
    bool is_broken;
} trial_case;

static const char cut[] = FL_BINARY_DIR "/tests/nccl_standin_cut.so";
static const char empty[] = FL_BINARY_DIR "/tests/plugin_empty.so";

static const trial_case trial_cases[] = {
    {standin, "", 0, NULL, false},
    {standin, "version=21801", 13000, NULL, false},
    {cut, "", 0,
     "nccl_standin_cut.so was killed by signal 7 (Bus error); the file may have been cut", true},
    {standin, "crash=Load:1", 0, "nccl_standin.so was killed by signal 4 (", true},
    {standin, "crash=GetVersion:1", 0, "nccl_standin.so was killed by signal 4 (", true},
    {standin, "hang=Load:1", 0, "nccl_standin.so did not end within 0.3 s", true},
    {standin, "hang=GetVersion:1", 0, "nccl_standin.so did not end within 0.3 s", true},
    {standin, "fail=GetVersion:1", 0, "does not tell its version: internal error", false},
    {standin, "version=21703", 0, "has version 2.17.3; allowed are 2.18.1", false},
    {standin, "version=30000", 0, "has version 3.0.0; allowed are 2.18.1", false},
    {standin, "", 12080, "was built with CUDA 13.0, the driver runs CUDA up to 12.8", false},
    {empty, "", 0, "plugin_empty.so has no function ncclGetVersion", false},
    {"/nowhere/libnccl.so.2", "", 0, "NCCL cannot be loaded: /nowhere/libnccl.so.2: ", false},
    {"/", "", 0, "NCCL cannot be loaded: /", false},
};

static void check_trial(const trial_case *c)
{
    enum { LONG_MS = 60000, SHORT_MS = 300 };
    fl_nccl_trial trial;
    bool hangs = strncmp(c->options, "hang", 4) == 0;
    setenv("FROSTLINE_NCCL", c->file, 1);
    setenv("FROSTLINE_NCCL_STANDIN", c->options, 1);
    assert_int_equal(
        fl_nccl_try("async-test", c->driver_version, hangs ? SHORT_MS : LONG_MS, &trial), FL_OK);
    bool as_wanted = c->reason == NULL
                         ? fl_nccl_is_usable(&trial) && trial.reason[0] == '\0'
                         : strstr(trial.reason, c->reason) != NULL && !fl_nccl_is_usable(&trial) &&
                               strncmp(trial.reason, "NCCL cannot be ", 15) == 0;
    if (!as_wanted || trial.is_broken != c->is_broken || strchr(trial.reason, '\n') != NULL) {
        fail_msg("%s, '%s': version %d, '%s'", c->file, c->options, trial.version, trial.reason);
    }
}

/* Catches a library that ends or holds up the program that only wants to know whether there is one.
 */
static void test_nccl_try__finds_out_without_harm(void **state)
{
    (void)state;
    cut_short(cut, 20000);
    for (size_t i = 0; i < sizeof trial_cases / sizeof *trial_cases; i++) {
        check_trial(&trial_cases[i]);
    }
    unlink(cut);
    setenv("FROSTLINE_NCCL_STANDIN", "", 1);
}

/* Try the library while `fd` leads into a pipe. What came out of it, to its end, which comes when
 * no process has it open any more; "?" if that never comes. */
static const char *try_with_pipe(const char *options, int fd, char text[128])
{
    enum { PATIENCE_MS = 30000 };
    fl_nccl_trial trial;
    int ends[2], own = dup(fd);
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    assert_true(own >= 0 && dup2(ends[1], fd) >= 0);
    close(ends[1]);
    setenv("FROSTLINE_NCCL", standin, 1);
    setenv("FROSTLINE_NCCL_STANDIN", options, 1);
    fl_status status = fl_nccl_try("async-test", 0, FL_NCCL_TRIAL_MS, &trial);
    assert_true(dup2(own, fd) >= 0);
    close(own);
    assert_int_equal(status, FL_OK);
    assert_true(fl_nccl_is_usable(&trial));
    setenv("FROSTLINE_NCCL_STANDIN", "", 1);
    size_t n = 0;
    ssize_t more = 1;
    while (more > 0) {
        struct pollfd end = {.fd = ends[0], .events = POLLIN};
        more = poll(&end, 1, PATIENCE_MS) == 1 ? read(ends[0], text + n, 127 - n) : -1;
        n += more > 0 ? (size_t)more : 0;
    }
    close(ends[0]);
    text[n] = '\0';
    return more == 0 ? text : "?";
}

/* Would catch: a process that the library starts when it is loaded, and that outlives the trial. */
static void test_nccl_try__ends_what_the_library_starts(void **state)
{
    (void)state;
    char text[128];
    assert_string_equal(try_with_pipe("fork=Load:1", STDERR_FILENO, text), "");
}

/* Would catch: words of the library in the output of a run, which programs may read. */
static void test_nccl_try__keeps_the_library_out_of_the_output(void **state)
{
    (void)state;
    char text[128];
    assert_string_equal(try_with_pipe("say=Load:1", STDOUT_FILENO, text), "");
    assert_string_equal(try_with_pipe("say=Load:1", STDERR_FILENO, text), "said by the library\n");
}

static void test_nccl_try__leaves_the_system_library_to_gpus(void **state)
{
    (void)state;
    fl_nccl_trial trial;
    setenv("FROSTLINE_NCCL", "", 1);
    assert_int_equal(fl_nccl_try("async-test", 0, FL_NCCL_TRIAL_MS, &trial), FL_OK);
    assert_string_equal(trial.reason,
                        "devices of kind async-test use NCCL only where FROSTLINE_NCCL names it");
}

static void test_nccl_version__is_written_as_nvidia_does(void **state)
{
    (void)state;
    char text[FL_NCCL_VERSION_TEXT];
    assert_string_equal(fl_nccl_version_text(22809, text), "2.28.9");
    assert_string_equal(fl_nccl_version_text(2804, text), "2.8.4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: a child inherits what this process has loaded. */
        cmocka_unit_test(test_nccl_try__finds_out_without_harm),
        cmocka_unit_test(test_nccl_try__ends_what_the_library_starts),
        cmocka_unit_test(test_nccl_try__keeps_the_library_out_of_the_output),
        cmocka_unit_test(test_nccl_try__leaves_the_system_library_to_gpus),
        cmocka_unit_test(test_nccl_load__finds_every_function),
        cmocka_unit_test(test_nccl_load__refuses_other_versions),
        cmocka_unit_test(test_nccl_load__refuses_a_file_that_is_not_nccl),
        cmocka_unit_test(test_nccl_load__asks_whether_the_driver_suits),
        cmocka_unit_test(test_nccl_version__is_written_as_nvidia_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
