#include "support/program.h"

#include <frostline/weights.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { COMMAND = 2048, ELEMENTS_MAX = 8192, MODELS_MAX = 3 };

/* What a 32-bit weight near 1 is rounded by. */
static const double ROUNDING = 1e-7;

output program_result;

void program_run(const char *folder, int code, const char *format, ...)
{
    char command[COMMAND] = FL_BINARY_DIR "/frostline ";
    size_t n = strlen(command);
    va_list args;
    va_start(args, format);
    vsnprintf(command + n, sizeof command - n, format, args);
    va_end(args);
    run_command(folder, command, &program_result);
    if (program_result.exit_code != code) {
        fail_msg("%s: exit code %d: %s", command, program_result.exit_code, program_result.err);
    }
}

void program_shell(const char *folder, const char *command)
{
    run_command(folder, command, &program_result);
    if (program_result.exit_code != 0) {
        fail_msg("%s: %s%s", command, program_result.out, program_result.err);
    }
}

/* Models side by side, one tensor of them at a time. */
typedef struct models {
    int n;
    fl_weights *of[MODELS_MAX];
    float values[MODELS_MAX][ELEMENTS_MAX];
} models;

static models opened;

static void open_models(const char *folder, const char *const *path, int n)
{
    char at[512];
    opened.n = n;
    for (int i = 0; i < n; i++) {
        snprintf(at, sizeof at, "%s%s%s", path[i][0] == '/' ? "" : folder,
                 path[i][0] == '/' ? "" : "/", path[i]);
        if (fl_weights_open(at, &opened.of[i]) != FL_OK) {
            fail_msg("%s", fl_errmsg());
        }
        assert_int_equal(fl_weights_count(opened.of[i]), fl_weights_count(opened.of[0]));
    }
}

static void close_models(void)
{
    for (int i = 0; i < opened.n; i++) {
        fl_weights_close(&opened.of[i]);
    }
}

/* Tensor t of all of them, of which names and shapes must agree. */
static fl_weights_tensor read_tensor(int t)
{
    fl_weights_tensor first = fl_weights_at(opened.of[0], t);
    assert_true(first.n_elements <= ELEMENTS_MAX);
    for (int i = 0; i < opened.n; i++) {
        fl_weights_tensor own = fl_weights_at(opened.of[i], t);
        assert_string_equal(own.name, first.name);
        assert_int_equal(own.n_dims, first.n_dims);
        assert_memory_equal(own.dims, first.dims, sizeof own.dims);
        assert_int_equal(fl_weights_read(opened.of[i], own.name, opened.values[i], own.n_elements),
                         FL_OK);
    }
    return first;
}

void program_same_tensors(const char *folder, const char *a, const char *b)
{
    open_models(folder, (const char *const[]){a, b}, 2);
    for (int t = 0; t < fl_weights_count(opened.of[0]); t++) {
        size_t n = (size_t)read_tensor(t).n_elements;
        assert_memory_equal(opened.values[0], opened.values[1], n * sizeof(float));
    }
    close_models();
}

void program_same_step(const char *folder, const char *start, const char *a, const char *wanted,
                       double tolerance)
{
    open_models(folder, (const char *const[]){start, a, wanted}, 3);
    for (int t = 0; t < fl_weights_count(opened.of[0]); t++) {
        const fl_weights_tensor tensor = read_tensor(t);
        double largest = 0, difference = 0;
        for (int64_t i = 0; i < tensor.n_elements; i++) {
            double change = (double)opened.values[2][i] - (double)opened.values[0][i];
            double error = (double)opened.values[1][i] - (double)opened.values[2][i];
            largest = fmax(largest, fabs(change));
            difference = fmax(difference, fabs(error));
        }
        if (!(difference <= tolerance * largest + ROUNDING)) {
            fail_msg("%s: a change of %.3g differs by %.3g", tensor.name, largest, difference);
        }
    }
    close_models();
}
