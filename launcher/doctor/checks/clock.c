/* The clocks. Deadlines and profiles use the monotonic clock, names of runs and log lines the clock
 * of the day. */
#include "launcher/doctor/checks/doctor.h"

#include "device/system/clock.h"
#include "device/text/plural.h"

#include <string.h>
#include <sys/timex.h>
#include <time.h>

enum { WATCH_US = 20000 };

static const double READ_NS_MOST = 2000.0; /* a reading that goes through the kernel */
static const int64_t STEP_US_MOST = 2000;
static const int64_t BUILT_S = INT64_C(1735689600); /* 2025: this program is younger */

void fl_doctor_judge_clock(const fl_doctor_clock *c, fl_findings *findings)
{
    int64_t step_us = c->real_us - c->elapsed_us;
    char times[FL_COUNT_BYTES];
    fl_finding *f;
    if (c->n_back > 0) {
        f = fl_finding_add(
            findings, FL_VERDICT_ERROR, "clock", "the monotonic clock went back %s (source %s)",
            fl_count(c->n_back, "time", times), c->source[0] == '\0' ? "unknown" : c->source);
        fl_finding_advise(f, "choose another source in /sys/devices/system/clocksource; deadlines "
                             "and profiles depend on this clock");
        return;
    }
    bool slow = c->read_ns > READ_NS_MOST;
    f = fl_finding_add(findings, slow ? FL_VERDICT_WARNING : FL_VERDICT_OK, "clock",
                       "monotonic, %.0f ns a reading, source %s", c->read_ns,
                       c->source[0] == '\0' ? "unknown" : c->source);
    if (slow) {
        fl_finding_advise(f, "times of operations are measured often: choose a faster source in "
                             "/sys/devices/system/clocksource, as tsc or kvm-clock");
    }
    if (c->now_s < BUILT_S) {
        f = fl_finding_add(findings, FL_VERDICT_WARNING, "date",
                           "the clock of the day is before 2025");
        fl_finding_advise(f, "set it: names of runs and log lines have its time");
    } else if (step_us > STEP_US_MOST || step_us < -STEP_US_MOST) {
        f = fl_finding_add(findings, FL_VERDICT_WARNING, "date",
                           "the clock of the day was set by %.1f ms in %.0f ms",
                           (double)step_us * 1e-3, (double)c->elapsed_us * 1e-3);
        fl_finding_advise(f, "let one service alone keep the time (chronyd, systemd-timesyncd)");
    } else {
        fl_finding_add(findings, FL_VERDICT_OK, "date", "%s",
                       c->is_synchronized
                           ? "synchronized"
                           : "not synchronized by the kernel's account; a run on one host "
                             "does not need it, and those of several are compared "
                             "with --hosts");
    }
}

static int64_t read_real_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void read_source(char *text, size_t size_bytes)
{
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    text[0] = '\0';
    if (file != NULL) {
        if (fgets(text, (int)size_bytes, file) == NULL) {
            text[0] = '\0';
        }
        fclose(file);
    }
    text[strcspn(text, "\n")] = '\0';
}

void fl_doctor_look_at_clock(fl_findings *findings)
{
    fl_doctor_clock c = {0};
    struct timex kernel = {0};
    int64_t begin_ns = fl_now_ns(), before_ns = begin_ns, now_ns = begin_ns;
    int64_t real_us = read_real_us();
    while (now_ns - begin_ns < (int64_t)WATCH_US * 1000 && c.n_back < 1000) {
        now_ns = fl_now_ns();
        c.n_back += now_ns < before_ns;
        before_ns = now_ns;
    }
    c.elapsed_us = (now_ns - begin_ns) / 1000;
    c.real_us = read_real_us() - real_us;
    c.read_ns = (double)fl_thread_ns();
    for (int i = 0; i < 1000; i++) { /* by processor time: other programs do not count */
        now_ns += fl_now_ns() > 0;
    }
    c.read_ns = ((double)fl_thread_ns() - c.read_ns) / 1000.0;
    c.now_s = read_real_us() / 1000000;
    c.is_synchronized = adjtimex(&kernel) != TIME_ERROR && (kernel.status & STA_UNSYNC) == 0;
    read_source(c.source, sizeof c.source);
    fl_doctor_judge_clock(&c, findings);
}
