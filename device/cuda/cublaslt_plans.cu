/* The algorithms that cuBLASLt chose: a table by shape, and its form as text.
 *
 * A line of the text:  VERSION KEY ALGORITHM  in hexadecimal, VERSION as cublasLtGetVersion has it.
 * An algorithm is valid for one version of the library. */
#include "device/cuda/cublaslt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2048, PLANS_MAX = SLOTS / 2 };

struct fl__product_plans {
    int n;
    fl__product_plan slot[SLOTS]; /* open addressing */
};

fl__product_plans *fl__plans_create(void)
{
    return static_cast<fl__product_plans *>(calloc(1, sizeof(fl__product_plans)));
}

void fl__plan_drop(const fl__cublaslt *lt, fl__product_plan *plan)
{
    if (plan->desc != nullptr) {
        (void)lt->cublasLtMatmulDescDestroy(plan->desc);
    }
    const cublasLtMatrixLayout_t layouts[] = {plan->left, plan->right, plan->result};
    for (cublasLtMatrixLayout_t layout : layouts) {
        if (layout != nullptr) {
            (void)lt->cublasLtMatrixLayoutDestroy(layout);
        }
    }
    plan->desc = nullptr;
    plan->left = plan->right = plan->result = nullptr;
}

static void forget_all(const fl__cublaslt *lt, fl__product_plans *plans)
{
    for (int i = 0; i < SLOTS; i++) {
        fl__plan_drop(lt, &plans->slot[i]);
    }
    memset(plans, 0, sizeof *plans);
}

void fl__plans_destroy(const fl__cublaslt *lt, fl__product_plans *plans)
{
    if (plans != nullptr) {
        forget_all(lt, plans);
        free(plans);
    }
}

/* FNV-1a */
static unsigned slot_of(const fl__product_key *key)
{
    const unsigned char *bytes = reinterpret_cast<const unsigned char *>(key);
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof *key; i++) {
        hash = (hash ^ bytes[i]) * 16777619u;
    }
    return hash % SLOTS;
}

static bool is_taken(const fl__product_plan *plan)
{
    return plan->key.rows != 0;
}

fl__product_plan *fl__plans_find(const fl__cublaslt *lt, fl__product_plans *plans,
                                 const fl__product_key *key)
{
    unsigned at = slot_of(key);
    while (is_taken(&plans->slot[at]) && memcmp(&plans->slot[at].key, key, sizeof *key) != 0) {
        at = (at + 1) % SLOTS;
    }
    if (is_taken(&plans->slot[at])) {
        return &plans->slot[at];
    }
    if (plans->n == PLANS_MAX) {
        forget_all(lt, plans);
        at = slot_of(key);
    }
    plans->n++;
    plans->slot[at].key = *key;
    return &plans->slot[at];
}

/* ---- as text ---- */

enum {
    KEY_DIGITS = 2 * sizeof(fl__product_key),
    ALGORITHM_DIGITS = 2 * sizeof(cublasLtMatmulAlgo_t),
    LINE_BYTES = 16 + KEY_DIGITS + ALGORITHM_DIGITS
};

static char *write_hex(const void *memory, size_t n, char *text)
{
    const unsigned char *bytes = static_cast<const unsigned char *>(memory);
    for (size_t i = 0; i < n; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    return text + 2 * n;
}

/* Exactly n bytes, then a space or the line's end. */
static bool read_hex(const char *text, void *memory, size_t n)
{
    unsigned char *bytes = static_cast<unsigned char *>(memory);
    if (strspn(text, "0123456789abcdef") != 2 * n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        bytes[i] = static_cast<unsigned char>(strtoul(pair, nullptr, 16));
    }
    return true;
}

static size_t write_line(size_t version, const fl__product_plan *plan, char line[LINE_BYTES + 1])
{
    char *at = line + snprintf(line, LINE_BYTES, "%zu ", version);
    at = write_hex(&plan->key, sizeof plan->key, at);
    *at++ = ' ';
    at = write_hex(&plan->algorithm, sizeof plan->algorithm, at);
    *at++ = '\n';
    *at = '\0';
    return (size_t)(at - line);
}

size_t fl__plans_write(const fl__cublaslt *lt, const fl__product_plans *plans, char *text,
                       size_t size_bytes)
{
    size_t needed = 1, written = 0, version = lt->cublasLtGetVersion();
    for (int i = 0; i < SLOTS; i++) {
        const fl__product_plan *plan = &plans->slot[i];
        if (plan->state == FL__PLAN_READY || plan->state == FL__PLAN_READ) {
            char line[LINE_BYTES + 1];
            size_t n = write_line(version, plan, line);
            needed += n;
            if (written + n < size_bytes) {
                memcpy(text + written, line, n);
                written += n;
            }
        }
    }
    if (size_bytes > 0) {
        text[written] = '\0';
    }
    return needed;
}

/* Whether a line is one of this version. */
static bool read_line(const char *line, size_t version, fl__product_plan *out)
{
    char *end = nullptr;
    memset(out, 0, sizeof *out);
    return strtoul(line, &end, 10) == version && end != line && *end == ' ' &&
           read_hex(end + 1, &out->key, sizeof out->key) && end[1 + KEY_DIGITS] == ' ' &&
           read_hex(end + 2 + KEY_DIGITS, &out->algorithm, sizeof out->algorithm) &&
           out->key.rows > 0;
}

int fl__plans_read(const fl__cublaslt *lt, fl__product_plans *plans, const char *text)
{
    size_t version = lt->cublasLtGetVersion();
    int n_taken = 0;
    for (const char *line = text; line != nullptr && *line != '\0' && plans->n < PLANS_MAX;) {
        fl__product_plan read;
        if (read_line(line, version, &read)) {
            fl__product_plan *plan = fl__plans_find(lt, plans, &read.key);
            if (plan->state == FL__PLAN_FREE) {
                plan->algorithm = read.algorithm;
                plan->state = FL__PLAN_READ;
                n_taken++;
            }
        }
        line = strchr(line, '\n');
        line = line == nullptr ? nullptr : line + 1;
    }
    return n_taken;
}
