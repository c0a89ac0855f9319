/* What frostline evaluate, predict and export refuse, and what they leave. Would catch: input that
 * is not refused, and files that stay. */
#include "support/data/idx_files.h"
#include "support/runs/used.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Each: a command that makes the input, a command of frostline, and what its message has. Nothing
 * is started or left. */
static void test_use_refusals__refuses_bad_input(void **state)
{
    (void)state;
    static const struct {
        const char *make, *command, *message;
    } cases[] = {
        {"", "evaluate nowhere", "nowhere: not found; allowed: a folder or file of weights"},
        {"", "evaluate data", "data: found neither model.safetensors nor"},
        {"", "predict ''", "frostline predict: found an empty text, allowed: MODEL"},
        {"", "evaluate", "MODEL [JOB.yaml] is missing"},
        {"", "evaluate run job.yaml more", "unexpected more"},
        {"", "evaluate run nowhere.yaml", "nowhere.yaml: "},
        {"truncate -s -5 m/model.safetensors", "evaluate m --data data", "m/model.safetensors"},
        {"truncate -s 4 m/model.safetensors", "predict m --data data", "m/model.safetensors"},
        {"echo '{' >m/config.json", "evaluate m --data data", "m/config.json:2:"},
        {"sed -i 's/\"version\": 1/\"version\": 9/' m/config.json", "evaluate m --data data",
         "m/config.json: version 9 of this format"},
        {"sed -i 's/\"dim\": 16/\"dim\": 32/' m/config.json", "evaluate m --data data",
         "m/config.json: layers[0]: patch.weight: found"},
        {"sed -i 's/\"heads\": 2/\"heads\": 3/' m/config.json", "evaluate m --data data",
         "m/config.json: model"},
        {"sed -i 's/\"blocks\": 2/\"blocks\": 1/' m/config.json", "evaluate m --data data",
         "layers: found 6, allowed: 4"},
        {"sed -i 's/vit/program/' m/config.json", "evaluate m --data data",
         "only that program can build it"},
        {"sed -i 's/\"kind\": \"vit\"/\"kind\": \"plugin\", \"plugin\": \"no.so\"/' "
         "m/config.json",
         "evaluate m --data data", "no.so"},
        {"rm m/config.json", "evaluate m --data data",
         "m: found no config.json beside the weights"},
        {"rm m/config.json", "export m --to new", "found no config.json"},
        {"cp -r data small && head -c 80 data/t10k-images-idx3-ubyte >small/t10k-images-idx3-ubyte",
         "evaluate m --data small", "t10k-images-idx3-ubyte"},
        {"", "evaluate m --data large", "found images of 12 x 12 pixels"},
        {"", "predict m --data classes",
         "found label 5, allowed: 0 to 3, the classes of the model"},
        {"", "evaluate m", "m: the data to use it on is missing"},
        {"", "evaluate m --data nowhere", "nowhere: neither t10k-images-idx3-ubyte nor"},
        {"", "evaluate m --data other --split train", "train-images-idx3-ubyte"},
        {"", "evaluate m --data data --split validation", "no validation samples"},
        {"", "evaluate run --split dev",
         "--split: found 'dev', allowed: test, train or validation"},
        {"", "evaluate run --set model.dim=32",
         "--set 'model.dim': has no effect on a saved model"},
        {"", "predict run --set train.lr=1", "--set 'train.lr': has no effect on a saved model"},
        {"", "evaluate run --set devices.count=1", "pipe.k: found K = 2"},
        {"", "predict run --out nowhere/x", "--out: nowhere/x: No such file"},
        {"", "predict run --out data", "--out: data is a folder, which is left as it is"},
        {"mkfifo m/pipe", "predict run --out m/pipe", "--out: m/pipe is a pipe, which is left"},
        {"ln -s none m/link", "predict run --out m/link", "--out: m/link is a symbolic link"},
        {"", "export run --to job.yaml", "--to: job.yaml"},
        {"", "export run --to run/model", "already holds model.safetensors"},
        {"", "export run --to run", "already holds job.yaml"},
        {"", "export run --to new --dtype int8",
         "--dtype: found 'int8', allowed: fp32, bf16 or fp16"},
        {"", "export run --to new --format csv", "--to exports the model, --format the curves"},
        {"", "export run --dtype bf16", "--dtype: allowed only with --to"},
        {"mkdir -p lost && cp run/job.yaml lost", "evaluate lost",
         "lost: this run has left no model and no checkpoint"},
    };
    char large[128], classes[128];
    snprintf(large, sizeof large, "%s/large", used_root);
    snprintf(classes, sizeof classes, "%s/classes", used_root);
    run_command(used_root, "mkdir large classes; ls -a >before", &program_result);
    write_split(large, "t10k", 3, 12, 12, 4);
    write_split(classes, "t10k", 30, 8, 8, 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char make[USED_COMMAND];
        snprintf(make, sizeof make, "rm -rf m small lost; cp -r run/model m; %s", cases[i].make);
        run_command(used_root, make, &program_result);
        assert_int_equal(program_result.exit_code, 0);
        program_run(used_root, 2, "%s", cases[i].command);
        if (strstr(program_result.err, cases[i].message) == NULL || program_result.out[0] != '\0') {
            fail_msg("%s: %s%s", cases[i].command, program_result.out, program_result.err);
        }
    }
    run_command(used_root, "rm -rf m small lost; ls -a | diff before -; rm -r before large classes",
                &program_result);
    assert_string_equal(program_result.out, "");
}

/* Nor does a command that was killed, once another one runs; logs that a message names stay. */
static void test_use_refusals__leaves_nothing_behind(void **state)
{
    (void)state;
    run_command(used_root,
                "mkdir -p tmp/frostline-pass-kept && touch tmp/frostline-pass-kept/kept &&"
                " touch -d '1 hour ago' tmp/frostline-pass-kept",
                &program_result);
    run_command(used_root, "find . | sort | grep -v -e before -e moved -e twice >before",
                &program_result);
    run_command(used_root,
                "mkdir tmp/frostline-pass-killed && touch tmp/frostline-pass-killed/worker-0.log &&"
                " touch -d '1 hour ago' tmp/frostline-pass-killed",
                &program_result);
    for (int i = 0; i < 2; i++) {
        static const char *const signals[] = {"", "timeout --foreground -s INT 0.3 "};
        char command[USED_COMMAND];
        snprintf(command, sizeof command,
                 "TMPDIR=$PWD/tmp %s" USED_PROGRAM "evaluate run >/dev/null", signals[i]);
        run_command(used_root, command, &program_result);
    }
    run_command(used_root, "find . | sort | grep -v -e before -e moved -e twice | diff before - ",
                &program_result);
    assert_string_equal(program_result.out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_use_refusals__refuses_bad_input),
        cmocka_unit_test(test_use_refusals__leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, used_set_up, used_tear_down);
}
