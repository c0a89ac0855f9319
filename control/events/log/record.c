#include "control/events/log/record.h"

#include "control/events/log/weight_lines.h"
#include "device/errors/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { LOOK_US = 1000 * 1000, LEDGER = FL_RUNFILES, HASHES, N_FILES, TEXT_BYTES = 256 };

static const char *file_name(int file)
{
    return file == LEDGER   ? "ledger.bin"
           : file == HASHES ? "weights.jsonl"
                            : fl_runfile_name((fl_runfile)file);
}

static const char *ledger_gap(const fl_record *record, char *text, size_t size_bytes)
{
    int error = 0;
    int64_t step = record->ledger == NULL ? -1 : fl_ledger_failed_step(record->ledger, &error);
    text[0] = 0;
    if (record->ledger_removed) {
        snprintf(text, size_bytes, "ledger.bin was removed while the run trained");
    } else if (step >= 0) {
        snprintf(text, size_bytes, "ledger.bin lacks every step from step %" PRId64 " on (%s)",
                 step, strerror(error));
    }
    return text;
}

static const char *hashes_gap(const fl_record *record, char *text, size_t size_bytes)
{
    text[0] = 0;
    if (record->hashes_failed) {
        snprintf(text, size_bytes, "weights.jsonl lacks hashes from step %" PRId64 " on (%s)",
                 record->hashes.step, strerror(record->hashes.error));
    }
    return text;
}

void fl_record_hashes_failed(fl_record *record, const fl_hashes_failed_report *report)
{
    if (!record->hashes_failed || report->step < record->hashes.step) {
        record->hashes = *report;
    }
    record->hashes_failed = true;
}

fl_status fl_record_hashes(fl_record *record, const fl_model *model, const fl_hashes_report *report)
{
    int n_layers = fl_model_n_layers(model);
    if (report->first + report->n > n_layers) {
        return fl_fail(FL_EFORMAT, "hashes of layers %d to %d, and the model has %d layers",
                       report->first, report->first + report->n - 1, n_layers);
    }
    if (record->hashes_failed) {
        return FL_OK;
    }
    int error = fl_weight_lines_append(record->dir_fd, model, report);
    if (error != 0) {
        fl_record_hashes_failed(record,
                                &(fl_hashes_failed_report){.step = report->step, .error = error});
    }
    return FL_OK;
}

static const char *gap_of(const fl_record *record, int file, char *text, size_t size_bytes)
{
    return file == LEDGER ? ledger_gap(record, text, size_bytes)
           : file == HASHES
               ? hashes_gap(record, text, size_bytes)
               : fl_runfile_gap_text(&record->log->files, (fl_runfile)file, text, size_bytes);
}

const char *fl_record_missing(const fl_record *record, char *text, size_t size_bytes)
{
    char gap[TEXT_BYTES];
    size_t n = 0;
    text[0] = 0;
    for (int file = 0; file < N_FILES && n < size_bytes; file++) {
        if (gap_of(record, file, gap, sizeof gap)[0] != 0) {
            n += (size_t)snprintf(text + n, size_bytes - n, "%s%s", n > 0 ? "; " : "", gap);
        }
    }
    return text;
}

/* A second failure of a file only changes its numbers, which are reported at the end of the run. */
static void report_file(fl_record *record, int file, const char *gap)
{
    record->reported[file] = true;
    fl_log(FL_LOG_WARN, "the record of this run is incomplete: %s; training goes on", gap);
    fl_json *j = fl_event_log_begin(record->log, "record.incomplete");
    fl_json_text(j, "file", file_name(file));
    fl_json_text(j, "missing", gap);
    fl_event_log_end(record->log);
}

/* The directory may be removed while its files are open: then every write succeeds but is lost. */
static void look_for_removed(fl_record *record)
{
    struct stat info;
    fl_runfiles_look(&record->log->files);
    if (fstatat(record->dir_fd, file_name(LEDGER), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        record->ledger_removed = true;
    }
}

void fl_record_watch(fl_record *record, bool at_once, int64_t now_us)
{
    char gap[TEXT_BYTES];
    if (at_once || now_us - record->looked_us >= LOOK_US) {
        record->looked_us = now_us;
        look_for_removed(record);
    }
    for (int file = 0; file < N_FILES; file++) {
        if (!record->reported[file] && gap_of(record, file, gap, sizeof gap)[0] != 0) {
            report_file(record, file, gap);
        }
    }
}
