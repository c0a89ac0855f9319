/* The screen of `frostline top` as cells. Would catch: a write outside the screen at any size, a
 * part that is missing although it fits, foreign text that reaches the terminal unfiltered, and
 * non-ASCII characters on a terminal that supports only ASCII. */
#include "launcher/top/draw/top_draw.h"
#include "launcher/top/draw/top_hosts.h"
#include "launcher/top/draw/top_layout.h"
#include "launcher/top/feed/top_ask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static fl_top_model model;
static char shown[1 << 20];

static const char *on_gpu = ""; /* more members of each worker */

static const char *of_run = ""; /* more members of the run */

/* A run of K x R workers and one on standby, whose newest loss is 0.25. */
static void make_model(int K, int R, int n_layers, int frozen)
{
    static char text[1 << 20];
    int n = 0;
    fl_top_model_init(&model);
    model.every_step = true;
    n += sprintf(
        text + n,
        "{\"job\": \"tiny\", \"state\": \"running\", \"time\": 75.5, \"step\": 500, "
        "\"steps\": 1000, \"epoch\": 1, \"epochs\": 4, \"loss\": 0.25, \"grad_norm\": 1.5, "
        "\"lr\": 0.001, \"step_ms\": 20.5, \"samples_per_s\": 1234.4, \"left_s\": 10.2, "
        "\"test_loss\": 0.3, \"loss_metrics\": [{\"name\": \"accuracy\", \"share\": true, "
        "\"evaluated\": 0.8125}, {\"name\": \"mae\", \"share\": false, \"evaluated\": 2.5}, "
        "{\"name\": \"\\u001b[2J\", \"evaluated\": 1}], \"mfu\": 0.417, \"blocks\": 8, "
        "\"straggler\": 1, \"pinned\": [5], \"transition\": \"idle\", \"times_s\": 10, "
        "\"cache\": {\"state\": \"on\", \"hits\": 75, \"upgrades\": 0, \"misses\": 25, "
        "\"used_bytes\": 1048576, \"memory_bytes\": 4194304, \"disk_bytes\": 0}, "
        "\"checkpoints\": {\"written\": 4, \"failed\": 1, \"step\": 400, \"age_s\": 72.5, "
        "\"bytes\": 3145728, \"seconds\": 0.25}, "
        "\"plan\": {\"generation\": 3, \"f\": 2, \"k\": %d, \"r\": %d, \"m\": 4, "
        "\"frozen_layers\": %d, \"predicted_step_ms\": 19.5, \"first\": [",
        K, R, frozen);
    for (int k = 0; k <= K; k++) {
        n += sprintf(text + n, "%s%d", k == 0 ? "" : ", ", k * n_layers / K);
    }
    n += sprintf(text + n, "]}, \"workers\": [");
    for (int i = 0; i <= K * R; i++) {
        bool active = i < K * R;
        n += sprintf(text + n,
                     "%s{\"rank\": %d, \"state\": \"%s\", \"replica\": %d, \"stage\": %d, "
                     "\"steps\": 500, \"operation\": \"step\", \"memory_peak_bytes\": 5767168, "
                     "\"compute_s\": %s, \"wait_s\": 2, \"reduce_wait_s\": 1, \"optimizer_s\": 1, "
                     "\"data_s\": 0%s}",
                     i == 0 ? "" : ", ", i, active ? "active" : "standby", active ? i / K : -1,
                     active ? i % K : -1, active ? "4" : "0", on_gpu);
    }
    sprintf(text + n, "]%s}", of_run);
    json_t *status = json_loads(text, 0, NULL);
    assert_non_null(status);
    assert_true(fl_top_model_status(&model, status));
    json_decref(status);
}

static void add_history(void)
{
    char line[128];
    for (int i = 0; i < 500; i++) {
        sprintf(line, "{\"step\": %d, \"loss\": %f, \"ms\": 20, \"samples\": 40}", i,
                2.0 / (1.0 + i * 0.01));
        fl_top_model_step(&model, line);
    }
    fl_top_model_event(&model, "{\"time\": 1.5, \"event\": \"run.running\"}");
    fl_top_model_event(&model, "{\"time\": 9, \"event\": \"worker.slow\", \"rank\": 1}");
}

static const fl_top_view with_keys = {.keys = true};

/* The screen as text in `shown`. */
static int draw(int width, int height, bool unicode, const fl_top_view *view)
{
    fl_top_cells cells = {.unicode = unicode};
    assert_int_equal(fl_top_cells_resize(&cells, width, height), FL_OK);
    int scroll = fl_top_layout(&cells, &model, view);
    FILE *out = fmemopen(shown, sizeof shown, "w");
    fl_top_cells_write(&cells, out);
    fclose(out);
    fl_top_cells_fini(&cells);
    return scroll;
}

static void shows(const char *text)
{
    if (strstr(shown, text) == NULL) {
        fail_msg("the screen does not show '%s':\n%s", text, shown);
    }
}

static void hides(const char *text)
{
    if (strstr(shown, text) != NULL) {
        fail_msg("the screen shows '%s':\n%s", text, shown);
    }
}

static void shows_the_run(void)
{
    static const char *const texts[] = {"tiny  running",
                                        "epoch 2/4",
                                        "1m15s",
                                        "step 500/1000",
                                        "50 %  10s left",
                                        "F 2/8",
                                        "K 2 x R 2 x M 4",
                                        "generation 3",
                                        "step 20.5 ms",
                                        "predicted 19.5 ms",
                                        "loss 0.25",
                                        "test 0.3, 81.25 %, mae 2.5   ",
                                        "MFU 41.7 %",
                                        "1234 samples/s",
                                        "cache on",
                                        "hits 75 %",
                                        "1.0 MiB of 4.0 MiB",
                                        "slow by itself worker 1",
                                        ("checkpoint step 400   1m12s ago   wrote 3.0 MiB   "
                                         "in 0.25 s   failed 1"),
                                        "blocks frozen 2 of 8",
                                        "pinned 5",
                                        "stage 1",
                                        "replica 1",
                                        "w2 0-8",
                                        "w3 9-17",
                                        "no stage w4 standby",
                                        "- loss",
                                        "samples/s -",
                                        "- events",
                                        "worker.slow",
                                        "p pause",
                                        "q quit",
                                        "steps 0-499"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        shows(texts[i]);
    }
}

static void test_top_layout__shows_all_of_a_run_at_80_by_24(void **state)
{
    (void)state;
    make_model(2, 2, 18, 5);
    add_history();
    assert_int_equal(draw(80, 24, false, &with_keys), 0);
    shows_the_run();
    shows(" layers *****====|=========");
    shows("    1!   0.1 active");
}

/* Would catch: "epoch 207/300012m52s". */
static void test_top_layout__keeps_the_epoch_apart_from_the_time(void **state)
{
    (void)state;
    static const int widths[] = {80, 90, 120};
    make_model(2, 2, 18, 5);
    model.epoch = 206;
    model.epochs = 3000;
    model.time_s = 772.0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        draw(widths[i], 24, false, &with_keys);
        shows("tiny  running");
        shows("  epoch 207/3000  12m52s");
    }
    model.epochs = INT64_C(3000000000); /* cut rather than joined */
    draw(80, 24, false, &with_keys);
    shows("epoch 207/3000000");
    shows(" 12m52s");
}

/* Would catch: the scores of validation samples shown as test scores. */
static void test_top_layout__names_the_evaluated_split(void **state)
{
    (void)state;
    static const char text[] = "{\"job\": \"tiny\", \"state\": \"running\", \"loss\": 0.25, "
                               "\"validation_loss\": 0.75, \"test_loss\": null, "
                               "\"evaluated_on\": \"validation\", \"loss_metrics\": "
                               "[{\"name\": \"accuracy\", \"share\": true, "
                               "\"evaluated\": 0.8125}], \"plan\": {}, \"workers\": []}";
    json_t *status = json_loads(text, 0, NULL);
    assert_non_null(status);
    fl_top_model_init(&model);
    assert_true(fl_top_model_status(&model, status));
    json_decref(status);
    draw(80, 24, false, &with_keys);
    shows("validation 0.75, 81.25 %");
    shows(" checkpoint none\n");
    hides("test 0");
}

static void test_top_layout__shows_all_of_a_run_at_200_by_60(void **state)
{
    (void)state;
    make_model(2, 2, 18, 5);
    add_history();
    assert_int_equal(draw(200, 60, false, &with_keys), 0);
    shows_the_run();
    shows("5.5 MiB  step");
}

/* Would catch: bytes that no terminal in such a locale can show. */
static void test_top_layout__without_utf8_is_ascii(void **state)
{
    (void)state;
    make_model(2, 2, 18, 5);
    add_history();
    (void)draw(120, 40, false, &with_keys);
    for (const char *c = shown; *c != 0; c++) {
        assert_true(*c == '\n' || (*c >= ' ' && *c <= '~'));
    }
    (void)draw(120, 40, true, &with_keys);
    shows("\xe2\x96\x88"); /* a full block */
}

static void test_top_layout__many_workers_scroll(void **state)
{
    (void)state;
    make_model(4, 4, 18, 5);
    add_history();
    int scroll = draw(80, 24, false, &with_keys);
    assert_true(scroll > 0 && scroll < 17);
    shows("w15 13-17");
    shows("of 17 ");
    fl_top_view scrolled = {.keys = true, .scroll = scroll};
    assert_int_equal(draw(80, 24, false, &scrolled), scroll);
    shows("   16      - standby");
    scrolled.scroll = 1000; /* of a run that has fewer workers by now */
    (void)draw(80, 24, false, &scrolled);
    shows("   16      - standby");
}

static void test_top_layout__says_what_stands_against_it(void **state)
{
    (void)state;
    make_model(2, 2, 18, 5);
    (void)draw(39, 24, false, &with_keys);
    shows("needs 40 x 10");
    hides("tiny");
    (void)draw(80, 9, false, &with_keys);
    shows("needs 40 x 10");
    fl_top_view silent = {.silence = "no answer for 3 s"};
    (void)draw(80, 24, false, &silent);
    shows("tiny  running  no answer for 3 s");
    hides("q quit");
    fl_top_model_end(&model, "stopped");
    (void)draw(80, 24, false, &silent);
    shows("tiny  stopped");
    hides("no answer");
    fl_top_model_init(&model);
    (void)draw(80, 24, false, &(fl_top_view){.keys = true});
    shows("waiting for the first answer of the run");
    fl_top_model_end(&model, "lost"); /* before it ever answered */
    (void)draw(80, 24, false, &(fl_top_view){.keys = true});
    shows("the run has ended: lost");
    hides("waiting");
}

/* Would catch: a refusal that is cut before it says what is allowed, one that hides the head of a
 * small screen, and a word that is wider than the screen. */
static void test_top_layout__a_long_refusal_takes_more_lines(void **state)
{
    (void)state;
    static const char refusal[] =
        "scale: refused: devices: found 9, but a plan of that many workers needs more memory than "
        "each device has; allowed: 1 .. 4";
    char word[200] = "";
    make_model(2, 2, 18, 5);
    (void)draw(80, 24, false, &(fl_top_view){.keys = true, .note = refusal, .bad_note = true});
    shows("\n scale: refused: devices: found 9, but a plan of that many workers needs more\n"
          " memory than each device has; allowed: 1 .. 4\n");
    (void)draw(40, 10, false, &(fl_top_view){.keys = true, .note = refusal, .bad_note = true});
    shows("tiny");
    shows("~");
    memset(word, 'w', sizeof word - 1);
    (void)draw(80, 24, false, &(fl_top_view){.note = word});
    shows("\n wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww\n");
}

static void test_top_layout__the_bottom_line_asks_and_tells(void **state)
{
    (void)state;
    make_model(2, 2, 18, 5);
    (void)draw(80, 24, false, &(fl_top_view){.keys = true, .question = "sure?", .note = "done"});
    shows("\n sure?\n");
    hides("done");
    (void)draw(80, 24, false, &(fl_top_view){.keys = true, .question = "", .note = "done"});
    shows("\n done\n");
    hides("q quit");
    (void)draw(80, 24, false, &(fl_top_view){.keys = true, .help = true});
    shows("pause all workers between two steps");
    shows("any key goes back");
    hides("tiny");
}

/* Would catch: an escape sequence in a job's name or in an event that controls the terminal, and
 * characters of zero or two cells that shift a line. */
static void test_top_layout__text_from_outside_is_tame(void **state)
{
    (void)state;
    make_model(1, 1, 4, 0);
    snprintf(model.job, sizeof model.job, "a\x1b[2J\x07\xcc\x81\xe5\xa4\xa7\xff\xc3\xa9z");
    fl_top_model_event(&model, "{\"time\": 1, \"event\": \"x\", \"why\": \"\\u001b[31m\\u202e!\"}");
    (void)draw(80, 24, true, &with_keys);
    shows("a?[2J????\xc3\xa9z  running");
    shows("why=\\033[31m\\342\\200\\256!");
    (void)draw(80, 24, false, &with_keys);
    shows("a?[2J?????z  running");
}

/* Would catch: the memory of a GPU without what lies outside the budget, a column that CPUs have,
 * too. */
static void test_top_layout__names_the_gpu_of_each_worker(void **state)
{
    (void)state;
    make_model(2, 1, 8, 0);
    (void)draw(220, 60, false, &with_keys);
    hides(" gpu");
    shows("5.5 MiB");
    on_gpu = ", \"gpu\": 7, \"memory_workspace_bytes\": 1048576";
    make_model(2, 1, 8, 0);
    on_gpu = "";
    (void)draw(220, 60, false, &with_keys);
    shows(" gpu");
    shows("  7  6.5 MiB");
    (void)draw(60, 40, false, &with_keys);
    hides(" gpu");
}

/* Would catch: a host without a name, a lost one that looks as any other, and a column of hosts in
 * a run on one. */
static void test_top_layout__names_the_host_of_each_worker(void **state)
{
    (void)state;
    make_model(2, 1, 8, 0);
    (void)draw(80, 24, false, &with_keys);
    hides("host");
    on_gpu = ", \"host\": \"node-07\"";
    of_run = ", \"hosts\": [{\"name\": \"node-06\", \"state\": \"joined\", \"workers\": 2}, "
             "{\"name\": \"node-07\", \"state\": \"lost\", \"workers\": 1}], \"links\": "
             "[{\"between\": \"hosts\", \"latency_us\": 50, \"bytes_per_s\": 1048576}]";
    make_model(2, 1, 8, 0);
    on_gpu = of_run = "";
    (void)draw(80, 24, false, &with_keys);
    shows("hosts node-07 x1 lost   node-06 x2   between them 50 us, 1.0 MiB/s");
    shows(" host");
    shows(" node-07");
    (void)draw(32, 40, false, &with_keys);
    hides(" host ");
}

/* Would catch: hosts, a lost one among them, that are left out without a sign because their names
 * are long, and names that look the same because their ends are cut. */
static void test_top_layout__long_names_of_hosts_hide_none(void **state)
{
    (void)state;
    on_gpu = ", \"host\": \"compute-node-0001.rack-17.example.org\"";
    of_run =
        ", \"hosts\": [{\"name\": \"head-node-of-the-cluster-rack-17\", \"state\": \"joined\", "
        "\"workers\": 1}, {\"name\": \"compute-node-0001.rack-17.example.org\", \"state\": "
        "\"joined\", \"workers\": 1}, {\"name\": \"compute-node-0002.rack-17.example.org\", "
        "\"state\": \"lost\", \"workers\": 1}]";
    make_model(2, 1, 8, 0);
    on_gpu = of_run = "";
    (void)draw(80, 24, false, &with_keys);
    shows(" hosts compute-node-0002.rack-17.example.org x1 lost   +2\n");
    shows(" compute~de-0001");
    (void)draw(80, 24, true, &with_keys);
    shows(" compute\xE2\x80\xA6"
          "de-0001");
    (void)draw(40, 24, false, &with_keys);
    shows(" hosts +3 (1 lost)\n");
    (void)draw(100, 24, false, &with_keys);
    shows(" x1 lost   head-node-of-the-cluster-rack-17 x1   +1\n");
    (void)draw(160, 24, false, &with_keys);
    shows(" x1   compute-node-0001.rack-17.example.org x1\n");
}

/* Would catch: a way to shorten names by which two hosts look the same although another has none.
 */
static void test_top_layout__names_are_cut_where_they_differ(void **state)
{
    (void)state;
    char text[FL_TOP_HOST_TEXT];
    static const struct {
        const char *names[2], *first;
        fl_top_cut cut;
    } cases[] = {
        {{"compute-node-0001.a.org", "compute-node-0002.a.org"},
         "compute~de-0001",
         FL_TOP_CUT_LABEL},
        {{"short", "b"}, "short", FL_TOP_CUT_LABEL},
        {{"node-1.rack-in-hall-3", "node-1.rack-in-hall-4"}, "node-1.~-hall-3", FL_TOP_CUT_MIDDLE},
        {{"node-a.rack-in-hall-3", "node-b.rack-in-hall-3"}, "node-a", FL_TOP_CUT_LABEL},
        {{"n.abcdefxy0ghijklmnopq", "n.abcdefxy1ghijklmnopq"}, "n.abcdefxy0ghi~", FL_TOP_CUT_END},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model.n_hosts = 2;
        for (int k = 0; k < 2; k++) {
            snprintf(model.host[k].name, sizeof model.host[k].name, "%s", cases[i].names[k]);
        }
        assert_int_equal(fl_top_hosts_cut(&model, 15), cases[i].cut);
        assert_string_equal(fl_top_host_shorten(cases[i].names[0], 15, cases[i].cut, false, text),
                            cases[i].first);
    }
}

/* Any size, any plan; the screen's memory has no room beyond it, so the sanitizers' build sees a
 * write outside, and this sees a cell that no terminal can show. */
static void test_top_layout__any_size_holds_any_run(void **state)
{
    (void)state;
    static const fl_top_view views[] = {{.keys = true},
                                        {.help = true},
                                        {.scroll = 3, .note = "x"},
                                        {.question = "y", .silence = "z"}};
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    for (int i = 0; i < 400; i++) {
        int K = 1 + (int)(rand_r(&seed) % (i % 10 == 0 ? 64 : 6)), R = 1 + (int)(rand_r(&seed) % 9);
        int width = (int)(rand_r(&seed) % (i % 2 == 0 ? 60 : 260));
        int height = (int)(rand_r(&seed) % 70);
        fl_top_cells cells = {.unicode = i % 3 == 0};
        make_model(K, R, (int)(rand_r(&seed) % 40), (int)(rand_r(&seed) % 40));
        if (i % 4 != 0) {
            add_history();
        }
        assert_int_equal(fl_top_cells_resize(&cells, width, height), FL_OK);
        (void)fl_top_layout(&cells, &model, &views[i % 4]);
        for (int at = 0; at < width * height; at++) {
            assert_true(cells.cell[at].glyph >= ' ' && cells.cell[at].glyph <= 0x28ff);
            assert_true(cells.unicode || cells.cell[at].glyph < 0x7f);
            assert_true(cells.cell[at].style < FL_TOP_STYLES);
        }
        fl_top_cells_fini(&cells);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_layout__shows_all_of_a_run_at_80_by_24),
        cmocka_unit_test(test_top_layout__keeps_the_epoch_apart_from_the_time),
        cmocka_unit_test(test_top_layout__names_the_evaluated_split),
        cmocka_unit_test(test_top_layout__shows_all_of_a_run_at_200_by_60),
        cmocka_unit_test(test_top_layout__without_utf8_is_ascii),
        cmocka_unit_test(test_top_layout__many_workers_scroll),
        cmocka_unit_test(test_top_layout__says_what_stands_against_it),
        cmocka_unit_test(test_top_layout__a_long_refusal_takes_more_lines),
        cmocka_unit_test(test_top_layout__the_bottom_line_asks_and_tells),
        cmocka_unit_test(test_top_layout__text_from_outside_is_tame),
        cmocka_unit_test(test_top_layout__names_the_gpu_of_each_worker),
        cmocka_unit_test(test_top_layout__names_the_host_of_each_worker),
        cmocka_unit_test(test_top_layout__long_names_of_hosts_hide_none),
        cmocka_unit_test(test_top_layout__names_are_cut_where_they_differ),
        cmocka_unit_test(test_top_layout__any_size_holds_any_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
