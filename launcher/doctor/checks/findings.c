#include "launcher/doctor/checks/findings.h"

#include "device/system/clock.h"
#include "device/text/plural.h"
#include "device/text/shown_text.h"

#include <stdarg.h>
#include <stdbool.h>

/* Where one goes that has this verdict. */
static fl_finding *find_room(fl_findings *findings, fl_verdict verdict)
{
    if (findings->n < FL_FINDINGS_MAX) {
        return &findings->of[findings->n++];
    }
    for (int i = FL_FINDINGS_MAX - 1; i >= 0; i--) {
        if (findings->of[i].verdict < verdict) {
            return &findings->of[i];
        }
    }
    return &findings->dropped;
}

fl_finding *fl_finding_add(fl_findings *findings, fl_verdict verdict, const char *check,
                           const char *format, ...)
{
    fl_finding *finding = find_room(findings, verdict);
    *finding = (fl_finding){.verdict = verdict, .check = check};
    va_list args;
    va_start(args, format);
    vsnprintf(finding->found, sizeof finding->found, format, args);
    va_end(args);
    return finding;
}

void fl_finding_advise(fl_finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->advice, sizeof finding->advice, format, args);
    va_end(args);
}

fl_verdict fl_findings_verdict(const fl_findings *findings)
{
    fl_verdict worst = FL_VERDICT_OK;
    for (int i = 0; i < findings->n; i++) {
        worst = findings->of[i].verdict > worst ? findings->of[i].verdict : worst;
    }
    return worst;
}

const char *fl_verdict_text(fl_verdict verdict)
{
    static const char *const texts[] = {"ok", "warning", "error"};
    return texts[verdict];
}

/* A message may quote a file, or name a folder. */
static void print_plain(FILE *out, const char *text)
{
    while (*text != '\0') {
        char octal[FL_TEXT_OCTAL_BYTES];
        size_t size = fl_text_harmless(text);
        fwrite(size > 0 ? text : fl_text_octal(*text, octal), 1,
               size > 0 ? size : FL_TEXT_OCTAL_BYTES - 1, out);
        text += size > 0 ? size : 1;
    }
}

void fl_findings_print(const fl_findings *findings, FILE *out)
{
    int n[3] = {0};
    for (int i = 0; i < findings->n; i++) {
        const fl_finding *f = &findings->of[i];
        n[f->verdict]++;
        fprintf(out, "%-8s %-10s ", fl_verdict_text(f->verdict), f->check);
        print_plain(out, f->found);
        fputc('\n', out);
        if (f->advice[0] != '\0') {
            fprintf(out, "%20s", "-> ");
            print_plain(out, f->advice);
            fputc('\n', out);
        }
    }
    char warnings[FL_COUNT_BYTES], errors[FL_COUNT_BYTES];
    fprintf(out, "%d ok, %s, %s\n", n[FL_VERDICT_OK],
            fl_count(n[FL_VERDICT_WARNING], "warning", warnings),
            fl_count(n[FL_VERDICT_ERROR], "error", errors));
}

void fl_findings_fields(const fl_findings *findings, fl_json *json)
{
    fl_json_text(json, "verdict", fl_verdict_text(fl_findings_verdict(findings)));
    fl_json_array(json, "checks");
    for (int i = 0; i < findings->n; i++) {
        const fl_finding *f = &findings->of[i];
        fl_json_object(json, NULL);
        fl_json_text(json, "check", f->check);
        fl_json_text(json, "verdict", fl_verdict_text(f->verdict));
        fl_json_text(json, "found", f->found);
        fl_json_text(json, "advice", f->advice);
        fl_json_close(json, '}');
    }
    fl_json_close(json, ']');
}

/* The time comes last: whoever asks from another host compares its clock with it. */
fl_status fl_findings_print_json(const fl_findings *findings, const fl_json *more, FILE *out)
{
    fl_json json = {0};
    fl_json_object(&json, NULL);
    fl_json_text(&json, "version", FL_VERSION);
    fl_findings_fields(findings, &json);
    if (more->n > 0 || more->broken) {
        fl_json_fields(&json, more);
    }
    fl_json_rounded(&json, "time", (double)fl_now_wall_ns() * 1e-9, 3);
    fl_json_close(&json, '}');
    fl_json_newline(&json);
    bool good = !json.broken;
    if (good) {
        fwrite(json.text, 1, json.n, out);
    }
    fl_json_fini(&json);
    return good ? FL_OK : fl_fail(FL_ENOMEM, "no memory for the output");
}
