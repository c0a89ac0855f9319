/* The windows of a file of questions, and how fast they are made.
 *
 *   bench_squad FILE DIR [max_tokens [stride]]     (the tokenizer's folder; 384, 128)
 *   bench_squad --print FILE DIR [max_tokens [stride]]
 *
 * Without --print: questions, windows, tokens and seconds. With it, a line for each window, as
 * tests/reference/make_squad_reference.py --windows prints them: question, both targets, id:type
 * of each token. bench/squad_windows.sh compares the two. */
#include "data/squad/squad_dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "bench_squad: %s: %s\n", fl_status_text(status), fl_errmsg());
        exit(1);
    }
}

static void print_windows(const fl_dataset *d)
{
    const fl_squad_split *split = fl_dataset_squad_split(d, FL_TEST);
    fl_shape longest;
    int64_t n_targets;
    must(d->ops->max_shape(d->self, &longest, &n_targets));
    int32_t *ids = calloc((size_t)longest.tokens, 2 * sizeof *ids);
    for (int64_t i = 0; i < split->n_windows && ids != NULL; i++) {
        const fl_squad_window *w = &split->windows[i];
        const fl_sample_key key = {.id = i};
        must(d->ops->read(d->self, FL_TEST, &key, ids));
        printf("%d %d %d", w->question, w->target[0], w->target[1]);
        int64_t n = fl__squad_window_length(split, fl_dataset_squad_frame(d), w);
        for (int64_t t = 0; t < n; t++) {
            printf(" %d:%d", ids[2 * t], ids[2 * t + 1]);
        }
        putchar('\n');
    }
    free(ids);
}

int main(int argc, char **argv)
{
    bool prints = argc > 1 && strcmp(argv[1], "--print") == 0;
    char **args = argv + 1 + prints;
    int n_args = argc - 1 - prints;
    if (n_args < 2) {
        fprintf(stderr, "usage: bench_squad [--print] FILE DIR [max_tokens [stride]]\n");
        return 2;
    }
    const fl_squad_options options = {.path = {NULL, args[0]},
                                      .tokenizer = args[1],
                                      .max_tokens = n_args > 2 ? atoi(args[2]) : 384,
                                      .stride = n_args > 3 ? atoi(args[3]) : 128,
                                      .types = true};
    fl_squad_info info;
    fl_dataset d;
    must(fl_dataset_squad_open(&options, &d, &info));
    if (prints) {
        print_windows(&d);
    } else {
        printf("%" PRId64 " questions, %" PRId64 " windows, %" PRId64 " tokens in %.2f s\n",
               info.n_questions, info.n_windows, info.n_tokens, (double)info.took_us * 1e-6);
    }
    fl_dataset_destroy(&d);
    return 0;
}
