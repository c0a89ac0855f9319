/* What a key begins, and the way of the question:
 *
 *     p            ────────────────────────> sure? ── y ──> request
 *     s f t d      ──> a number, enter ────>   │
 *     D            ──> a host, enter ──────>   │
 *     x            ──> now or epoch ───────>   └─ any other ──> nothing */
#include "launcher/top/feed/top_ask.h"

#include "device/text/plain_name.h"
#include "device/text/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 10 };

typedef struct command {
    int key;
    const char *name; /* of the control socket */
    const char *arg;
    const char *asks; /* NULL: nothing */
    const char *text; /* with the number */
} command;

static const command commands[] = {
    {'p', "pause", NULL, NULL, "pause the run"},
    {'s', "scale", "devices", "scale to N devices, or to K x R as 2x1", "scale to %s"},
    {'f', "freeze", "blocks", "number of blocks to freeze", "freeze the first %s blocks"},
    {'t', "thaw", "blocks", "number of blocks to keep frozen", "thaw all but the first %s blocks"},
    {'d', "drain", "worker", "drain which worker", "drain worker %s: it leaves the run"},
    {'D', "drain", "host", "drain which host", "drain host %s: the run goes on without it"},
    {'x', "stop", NULL, NULL, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const command *command_of(int key)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (commands[i].key == key) {
            return &commands[i];
        }
    }
    return NULL;
}

static void forget_question(fl_top_ask *a)
{
    a->at = FL_TOP_ASK_NOTHING;
    a->question[0] = 0;
}

static void ask_sure(fl_top_ask *a)
{
    a->at = FL_TOP_ASK_SURE;
    snprintf(a->question, sizeof a->question, "%s?  y: yes, any other key: no", a->request.text);
}

/* The hosts that can be drained: " (b, c)". */
static void list_hosts(const fl_top_model *m, char text[FL_TOP_ARGS_MAX])
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 1; i < m->n_hosts && n + FL_HOST_TEXT < FL_TOP_ARGS_MAX; i++) {
        if (strcmp(m->host[i].state, "joined") == 0) {
            n += (size_t)snprintf(text + n, FL_TOP_ARGS_MAX - n, "%s%s", n == 0 ? " (" : ", ",
                                  m->host[i].name);
        }
    }
    if (n > 0 && n + 1 < FL_TOP_ARGS_MAX) {
        memcpy(text + n, ")", 2);
    }
}

static void ask_input(fl_top_ask *a, const command *c, const fl_top_model *m)
{
    char hosts[FL_TOP_ARGS_MAX] = "";
    a->at = FL_TOP_ASK_INPUT;
    if (c->key == 'D') {
        list_hosts(m, hosts);
    }
    snprintf(a->question, sizeof a->question, "%s%s: %s_", c->asks, hosts, a->input);
}

static void begin_question(fl_top_ask *a, const command *c, const fl_top_model *m)
{
    bool paused = strcmp(m->state, "paused") == 0;
    memset(a, 0, sizeof *a);
    a->key = c->key;
    a->request.command = c->key == 'p' && paused ? "resume" : c->name;
    snprintf(a->request.args, sizeof a->request.args, "{}");
    if (c->asks != NULL) {
        ask_input(a, c, m);
    } else if (c->key == 'x') {
        a->at = FL_TOP_ASK_WHEN;
        snprintf(a->question, sizeof a->question,
                 "stop the run:  n: now, e: after the epoch, any other key: cancel");
    } else {
        snprintf(a->request.text, sizeof a->request.text, "%s",
                 paused ? "let the run go on" : c->text);
        ask_sure(a);
    }
}

/* The name of another host of the run into the request. */
static bool take_host(fl_top_ask *a, const command *c, const fl_top_model *m)
{
    const char *at = strstr(c->text, "%s");
    for (int i = 1; i < m->n_hosts; i++) {
        if (strcmp(m->host[i].name, a->input) == 0 &&
            fl_name_is_plain(a->input, FL_HOST_TEXT - 1)) {
            snprintf(a->request.args, sizeof a->request.args, "{\"%s\": \"%s\"}", c->arg, a->input);
            snprintf(a->request.text, sizeof a->request.text, "%.*s%s%s", (int)(at - c->text),
                     c->text, a->input, at + 2);
            return true;
        }
    }
    return false;
}

/* "2" or "2x1" into the request; false: it is neither. */
static bool take_numbers(fl_top_ask *a, const command *c)
{
    char *end;
    long number = strtol(a->input, &end, 10), second = -1;
    if (a->input[0] == 0 || a->input[0] == 'x') {
        return false;
    }
    if (*end == 'x') {
        second = end[1] == 0 ? -1 : strtol(end + 1, &end, 10);
        if (c->key != 's' || second < 0) {
            return false;
        }
    }
    if (*end != 0) {
        return false;
    }
    if (second >= 0) {
        snprintf(a->request.args, sizeof a->request.args, "{\"k\": %ld, \"r\": %ld}", number,
                 second);
        snprintf(a->request.text, sizeof a->request.text, "scale to K=%ld x R=%ld", number, second);
    } else {
        char value[FL_COUNT_BYTES];
        snprintf(a->request.args, sizeof a->request.args, "{\"%s\": %ld}", c->arg, number);
        if (c->key == 's') {
            fl_count(number, "device", value);
        } else {
            snprintf(value, sizeof value, "%ld", number);
        }
        const char *at = strstr(c->text, "%s");
        snprintf(a->request.text, sizeof a->request.text, "%.*s%s%s", (int)(at - c->text), c->text,
                 value, at + 2);
    }
    return true;
}

static bool take_input(fl_top_ask *a, const command *c, const fl_top_model *m)
{
    return c->key == 'D' ? take_host(a, c, m) : take_numbers(a, c);
}

/* The name of a host may have any of these letters, so that only escape ends its question. */
static bool takes_key(const fl_top_ask *a, int key)
{
    bool is_digit = key >= '0' && key <= '9';
    if (a->key != 'D') {
        return is_digit || (key == 'x' && a->key == 's');
    }
    return is_digit || (key >= 'a' && key <= 'z') || (key >= 'A' && key <= 'Z') || key == '-' ||
           key == '_' || key == '.';
}

static void type(fl_top_ask *a, const fl_top_model *m, int key)
{
    enum { DIGITS = 7 }; /* more than anything here has */
    const command *c = command_of(a->key);
    size_t n = strlen(a->input);
    size_t longest = a->key == 'D' ? FL_TOP_INPUT_MAX : DIGITS;
    if (key == FL_TOP_KEY_ESCAPE || (key == 'q' && a->key != 'D')) {
        forget_question(a);
        return;
    }
    if (key == FL_TOP_KEY_ENTER && take_input(a, c, m)) {
        ask_sure(a);
        return;
    }
    if (key == FL_TOP_KEY_ERASE && n > 0) {
        a->input[n - 1] = 0;
    } else if (takes_key(a, key) && n < longest) {
        a->input[n] = (char)key;
        a->input[n + 1] = 0;
    }
    ask_input(a, c, m);
}

static void choose_when(fl_top_ask *a, int key)
{
    bool now = key == 'n';
    if (!now && key != 'e') {
        forget_question(a);
        return;
    }
    snprintf(a->request.args, sizeof a->request.args, "{\"when\": \"%s\"}", now ? "now" : "epoch");
    snprintf(a->request.text, sizeof a->request.text, "stop the run %s",
             now ? "after the step in flight" : "with the epoch");
    ask_sure(a);
}

static fl_top_deed idle_key(fl_top_ask *a, const fl_top_model *m, int key, int *scroll)
{
    const command *c = m->known && !m->over ? command_of(key) : NULL;
    c = key == 'D' && m->n_hosts < 2 ? NULL : c;
    *scroll = key == FL_TOP_KEY_UP          ? -1
              : key == FL_TOP_KEY_DOWN      ? 1
              : key == FL_TOP_KEY_PAGE_UP   ? -PAGE
              : key == FL_TOP_KEY_PAGE_DOWN ? PAGE
                                            : 0;
    if (c != NULL) {
        begin_question(a, c, m);
    }
    return key == 'q'                 ? FL_TOP_DEED_QUIT
           : key == '?' || key == 'h' ? FL_TOP_DEED_HELP
           : *scroll != 0             ? FL_TOP_DEED_SCROLL
                                      : FL_TOP_DEED_NONE;
}

fl_top_deed fl_top_ask_key(fl_top_ask *a, const fl_top_model *m, int key, int *scroll)
{
    bool yes = a->at == FL_TOP_ASK_SURE && (key == 'y' || key == 'Y');
    *scroll = 0;
    switch (a->at) {
    case FL_TOP_ASK_NOTHING:
        return idle_key(a, m, key, scroll);
    case FL_TOP_ASK_INPUT:
        type(a, m, key);
        return FL_TOP_DEED_NONE;
    case FL_TOP_ASK_WHEN:
        choose_when(a, key);
        return FL_TOP_DEED_NONE;
    case FL_TOP_ASK_SURE:
        break;
    }
    forget_question(a);
    return yes ? FL_TOP_DEED_SEND : FL_TOP_DEED_NONE;
}
