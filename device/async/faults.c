/* Failures on request, the failure that stays, and defects of the caller. */
#include "device/async/parts.h"

#include "device/errors/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fl__async_entry_name(fl__async_entry entry)
{
    static const char *const names[] = {
#define NAME(name, ...) [FL__ASYNC_##name] = #name,
        FL__ASYNC_CALLS(NAME) FL__ASYNC_WORK(NAME) FL__ASYNC_KERNELS(NAME)
            FL__ASYNC_OTHER_KERNELS(NAME)
#undef NAME
    };
    return names[entry];
}

/* Entries that queue work stand behind those that do not. */
static bool queues_work(int entry)
{
    return entry >= FL__ASYNC_FIRST_WORK;
}

const char *fl_async_entry(int index, bool *queues)
{
    if (index < 0 || index >= FL__ASYNC_ENTRIES) {
        return NULL;
    }
    *queues = queues_work(index);
    return fl__async_entry_name((fl__async_entry)index);
}

uint64_t fl_device_async_calls(const fl_device *device, int index)
{
    const fl__async *a = (const fl__async *)device;
    return atomic_load(&a->n_calls[index]);
}

fl_status fl__async_fault_set(fl__async *a, const fl_async_fault *fault)
{
    if (fault->entry == NULL) {
        a->fault_entry = FL__ASYNC_ENTRIES;
        return FL_OK;
    }
    for (int i = 0; i < FL__ASYNC_ENTRIES; i++) {
        if (strcmp(fault->entry, fl__async_entry_name((fl__async_entry)i)) == 0) {
            if (fault->later && !queues_work(i)) {
                return fl_fail(FL_EINVAL, "%s cannot fail later: it queues no work", fault->entry);
            }
            a->fault_entry = (fl__async_entry)i;
            a->fault_at = atomic_load(&a->n_calls[i]) + fault->n;
            a->fault_later = fault->later;
            return FL_OK;
        }
    }
    return fl_fail(FL_EINVAL, "no entry of the device table that can fail is called '%s'",
                   fault->entry);
}

fl_status fl_device_async_fail(fl_device *device, const fl_async_fault *fault)
{
    fl__async *a = fl__async_of(device);
    pthread_mutex_lock(&a->lock);
    fl_status status = fl__async_fault_set(a, fault);
    pthread_mutex_unlock(&a->lock);
    return status;
}

fl_status fl__async_raise(fl__async *a)
{
    pthread_mutex_lock(&a->lock);
    fl_status status = fl_failure_raise(&a->failure);
    pthread_mutex_unlock(&a->lock);
    return status;
}

fl_status fl__async_enter(fl__async *a, fl__async_entry entry, bool *fails)
{
    uint64_t number = atomic_fetch_add(&a->n_calls[entry], 1) + 1;
    pthread_mutex_lock(&a->lock);
    bool due = a->fault_entry == entry && a->fault_at == number, later = a->fault_later;
    fl_status status = fl_failure_raise(&a->failure);
    pthread_mutex_unlock(&a->lock);
    FL_TRY(status);
    if (fails != NULL) {
        *fails = due && later;
    }
    if (due && !later) {
        return fl_fail(FL_EIO, "device async-test: call %" PRIu64 " of %s failed, on request",
                       number, fl__async_entry_name(entry));
    }
    return FL_OK;
}

void fl__async_misuse(fl__async *a, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fl_log(FL_LOG_ERROR, "device async-test: %s", text);
    a->misused = true;
}

/* ---- options as text ---- */

static fl_status read_number(const char *key, const char *value, uint64_t *out)
{
    char *end = NULL;
    unsigned long long number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0') {
        return fl_fail(FL_EINVAL, "%s: found '%s', allowed is a whole number", key, value);
    }
    *out = number;
    return FL_OK;
}

/* "copy_in:3". The name becomes the table's own. */
static fl_status read_fault(const char *key, char *value, fl_async_fault *out)
{
    uint64_t n = 1;
    bool queues;
    char *number = strchr(value, ':');
    if (number != NULL) {
        *number++ = '\0';
        FL_TRY(read_number(key, number, &n));
    }
    *out = (fl_async_fault){.n = n, .later = strcmp(key, "fail_later") == 0};
    for (int i = 0; fl_async_entry(i, &queues) != NULL; i++) {
        if (strcmp(fl_async_entry(i, &queues), value) == 0) {
            out->entry = fl_async_entry(i, &queues);
            return FL_OK;
        }
    }
    return fl_fail(FL_EINVAL, "%s: no entry of the device table that can fail is called '%s'", key,
                   value);
}

static fl_status read_option(char *text, fl_async_options *o)
{
    uint64_t number = 0;
    char *value = strchr(text, '=');
    if (value == NULL) {
        return fl_fail(FL_EINVAL, "found '%s', expected KEY=VALUE", text);
    }
    *value++ = '\0';
    if (strcmp(text, "fail") == 0 || strcmp(text, "fail_later") == 0) {
        return read_fault(text, value, &o->fault);
    }
    FL_TRY(read_number(text, value, &number));
    if (strcmp(text, "seed") == 0) {
        o->seed = number;
    } else if (strcmp(text, "delay_us") == 0 && number <= FL_ASYNC_DELAY_MAX_US) {
        o->max_delay_us = (int64_t)number;
    } else if (strcmp(text, "delay_us") == 0) {
        return fl_fail(FL_EINVAL, "delay_us: found %" PRIu64 ", at most %d are allowed", number,
                       FL_ASYNC_DELAY_MAX_US);
    } else if (strcmp(text, "memory") == 0) {
        o->memory_bytes = (size_t)number;
    } else {
        return fl_fail(FL_EINVAL, "found '%s', allowed: seed, delay_us, memory, fail, fail_later",
                       text);
    }
    return FL_OK;
}

fl_status fl_async_options_read(const char *text, fl_async_options *options)
{
    char copy[256], *rest = copy, *part;
    fl_async_options o = *options;
    if (strlen(text) >= sizeof copy) {
        return fl_fail(FL_EINVAL, "FROSTLINE_ASYNC_TEST: %zu characters, at most %zu are allowed",
                       strlen(text), sizeof copy - 1);
    }
    snprintf(copy, sizeof copy, "%s", text);
    while ((part = strsep(&rest, ",")) != NULL) {
        fl_status status = part[0] == '\0' ? FL_OK : read_option(part, &o);
        if (status != FL_OK) {
            return fl_within(status, "FROSTLINE_ASYNC_TEST");
        }
    }
    *options = o;
    return FL_OK;
}

fl_status fl_async_options_of_environment(fl_async_options *options)
{
    const char *text = getenv("FROSTLINE_ASYNC_TEST");
    return text == NULL ? FL_OK : fl_async_options_read(text, options);
}
