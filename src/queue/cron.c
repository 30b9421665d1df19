/*-------------------------------------------------------------------------
 *
 * cron.c
 *	  When a schedule fires: "@every 5m", or five fields as in crontab.
 *
 * Terms: a label is what a clock on the wall shows, as seconds since 1970 as if
 * the zone were UTC.  A time zone gives most labels one instant; those of an hour
 * that is skipped when clocks go forward none, and those of an hour that is
 * repeated when they go back two.
 *
 * As in Vixie cron, what runs at certain hours is meant to run as often as its
 * labels are in the calendar: a skipped one runs once, right after the gap, with
 * all others of that gap, and a repeated one runs the first time.  What runs in
 * every hour is meant to run by time that goes by: it runs at each instant whose
 * label matches.
 *
 * Also as there, if day of month and day of week are both restricted, either is
 * enough; a field that begins with * does not count as restricted.
 *
 * Copyright (c) 2026, the udb authors
 *
 *-------------------------------------------------------------------------
 */
#include "udb.h"

#include <ctype.h>
#include <limits.h>

#include "common/int.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "queue/cron.h"

#define MAX_SPEC_BYTES 1024

/* as in interval arguments: a thousand years */
#define MAX_EVERY_USECS (INT64CONST(1000) * 365 * USECS_PER_DAY)

/*
 * Instants are nearer than this to their labels.  Zones are less than 16 hours
 * from UTC.
 */
#define MAX_OFFSET_SECS (16 * SECS_PER_HOUR)

/* In so many days, any possible date has been on any weekday. */
#define MAX_SEARCH_DAYS (41 * 366)

#define NEVER PG_INT64_MAX
#define ALL_HOURS ((1U << HOURS_PER_DAY) - 1)

typedef struct Field
{
	const char *name;
	int			low;
	int			high;
	const char *const *names;	/* of the values from low on, or NULL */
} Field;

static const char *const month_names[] = {"jan", "feb", "mar", "apr", "may", "jun", "jul",
										  "aug", "sep", "oct", "nov", "dec", NULL};
static const char *const weekday_names[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat", NULL};

enum
{
	FIELD_MINUTE,
	FIELD_HOUR,
	FIELD_DAY_OF_MONTH,
	FIELD_MONTH,
	FIELD_DAY_OF_WEEK,
	NFIELDS
};

static const Field fields[NFIELDS] = {
	{"minute", 0, 59, NULL},
	{"hour", 0, 23, NULL},
	{"day-of-month", 1, 31, NULL},
	{"month", 1, 12, month_names},
	{"day-of-week", 0, 7, weekday_names},
};

static const struct
{
	const char *name;
	const char *spec;
} aliases[] = {
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
};

/* ---- parsing ---- */

static void
bad_spec(const char *spec, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid schedule \"%s\"", spec),
			 errdetail("%s", detail),
			 errhint("Use \"@every 5m\", with s, m, h or d, or the five fields minute, hour, day of month, month and day of week.")));
}

static void
bad_field(const Field *field, const char *text, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid %s field \"%s\" of a schedule", field->name, text),
			 errdetail("%s", detail)));
}

/* A number or a name at *s, which moves behind it. */
static int
parse_value(const Field *field, const char *text, const char **s)
{
	int			value = 0;
	const char *start = *s;

	if (isalpha((unsigned char) *start))
	{
		while (isalpha((unsigned char) **s))
			(*s)++;
		for (int i = 0; field->names != NULL && field->names[i] != NULL; i++)
			if (*s - start == 3 && pg_strncasecmp(start, field->names[i], 3) == 0)
				return field->low + i;
		bad_field(field, text,
				  psprintf("\"%.*s\" is not a value.", (int) (*s - start), start));
	}
	while (isdigit((unsigned char) **s) && value < 1000)
		value = value * 10 + (*(*s)++ - '0');
	if (*s == start)
		bad_field(field, text, "A value, range or * is missing.");
	if (value < field->low || value > field->high)
		bad_field(field, text, psprintf("Values are %d to %d.", field->low, field->high));
	return value;
}

/* One element of the list: a value, a range or *, and perhaps a step. */
static uint64
parse_element(const Field *field, const char *text, const char **s)
{
	int			low = field->low;
	int			high = field->high;
	int			step = 1;
	bool		range = true;
	uint64		bits = 0;

	if (**s == '*')
	{
		(*s)++;
		if (field == &fields[FIELD_DAY_OF_WEEK])
			high = 6;
	}
	else
	{
		low = high = parse_value(field, text, s);
		range = **s == '-';
		if (range)
		{
			(*s)++;
			high = parse_value(field, text, s);
			/* a week can end with Sunday */
			if (field == &fields[FIELD_DAY_OF_WEEK] && high == 0 && low > 0)
				high = 7;
			if (high < low)
				bad_field(field, text, "A range must not run backwards.");
		}
	}
	if (**s == '/')
	{
		const Field steps = {field->name, 1, field->high, NULL};

		if (!range)
			bad_field(field, text, "A step needs a range or *.");
		(*s)++;
		step = parse_value(&steps, text, s);
	}
	for (int i = low; i <= high; i += step)
		bits |= UINT64CONST(1) << i;
	return bits;
}

static uint64
parse_field(const Field *field, const char *text)
{
	const char *s = text;
	uint64		bits = 0;

	for (;;)
	{
		bits |= parse_element(field, text, &s);
		if (*s == '\0')
			break;
		if (*s != ',')
			bad_field(field, text, psprintf("\"%s\" is not understood.", s));
		s++;
	}
	if (field == &fields[FIELD_DAY_OF_WEEK] && (bits & (1 << 7)) != 0)
		bits = (bits & ~UINT64CONST(1 << 7)) | 1;
	return bits;
}

static void
parse_every(const char *spec, const char *s, UdbCron *cron)
{
	int64		unit = 0;
	int64		n = 0;
	bool		overflow = false;
	const char *digits;

	while (isspace((unsigned char) *s))
		s++;
	for (digits = s; isdigit((unsigned char) *s); s++)
		overflow |= pg_mul_s64_overflow(n, 10, &n) || pg_add_s64_overflow(n, *s - '0', &n);
	if (s > digits && *s != '\0' && s[1] == '\0')
		unit = *s == 's' ? USECS_PER_SEC : *s == 'm' ? USECS_PER_MINUTE :
			*s == 'h'								 ? USECS_PER_HOUR :
			*s == 'd'								 ? USECS_PER_DAY :
													   0;
	if (unit == 0)
		bad_spec(spec, "After \"@every\" there is a whole number and s, m, h or d.");
	overflow |= pg_mul_s64_overflow(n, unit, &cron->every);
	if (overflow || cron->every > MAX_EVERY_USECS)
		bad_spec(spec, "The interval is too long.");
	if (cron->every == 0)
		bad_spec(spec, "The interval must be greater than zero.");
}

static void
parse_fields(const char *spec, const char *text, UdbCron *cron)
{
	char	   *copy = pstrdup(text);
	char	   *words[NFIELDS];
	char	   *save = NULL;
	int			n = 0;

	for (char *word = strtok_r(copy, " \t", &save); word != NULL; word = strtok_r(NULL, " \t", &save))
	{
		if (n < NFIELDS)
			words[n] = word;
		n++;
	}
	if (n != NFIELDS)
		bad_spec(spec, psprintf("It has %d fields.", n));
	cron->minutes = parse_field(&fields[FIELD_MINUTE], words[FIELD_MINUTE]);
	cron->hours = (uint32) parse_field(&fields[FIELD_HOUR], words[FIELD_HOUR]);
	cron->days = (uint32) parse_field(&fields[FIELD_DAY_OF_MONTH], words[FIELD_DAY_OF_MONTH]);
	cron->months = (uint32) parse_field(&fields[FIELD_MONTH], words[FIELD_MONTH]);
	cron->weekdays = (uint32) parse_field(&fields[FIELD_DAY_OF_WEEK], words[FIELD_DAY_OF_WEEK]);
	cron->either_day = words[FIELD_DAY_OF_MONTH][0] != '*' && words[FIELD_DAY_OF_WEEK][0] != '*';
	pfree(copy);
}

void
udb_cron_parse(const char *spec, UdbCron *cron)
{
	const char *text = spec + strspn(spec, " \t");

	memset(cron, 0, sizeof(UdbCron));
	if (strlen(spec) > MAX_SPEC_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("schedule of %zu bytes is too long", strlen(spec)),
				 errdetail("The limit is %d bytes.", MAX_SPEC_BYTES)));
	if (strncmp(text, "@every", 6) == 0)
	{
		parse_every(spec, text + 6, cron);
		return;
	}
	for (int i = 0; i < lengthof(aliases); i++)
		if (strcmp(text, aliases[i].name) == 0)
			text = aliases[i].spec;
	if (text[0] == '@')
		bad_spec(spec, "There is no such name.");
	parse_fields(spec, text, cron);
}

/*
 * pg_tzset() takes any "letters and digits" for a zone that is so many hours
 * west of UTC, so that a mistyped name would count.  It writes such a name in
 * capitals; of the names in the database only these look like it.
 */
static bool
is_improvised(const char *name)
{
	static const char *const known[] = {"EST5EDT", "CST6CDT", "MST7MDT", "PST8PDT", "GMT0",
										"GMT+0", "GMT-0"};

	for (int i = 0; i < lengthof(known); i++)
		if (strcmp(name, known[i]) == 0)
			return false;
	return strpbrk(name, "0123456789") != NULL &&
		strpbrk(name, "abcdefghijklmnopqrstuvwxyz") == NULL;
}

pg_tz *
udb_cron_time_zone(const char *name)
{
	pg_tz	   *tz = name[0] != '\0' ? pg_tzset(name) : NULL;

	if (tz == NULL || is_improvised(pg_get_timezone_name(tz)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" not recognized", name),
				 errhint("pg_timezone_names lists the names.")));
	if (!pg_tz_acceptable(tz))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" appears to use leap seconds", name),
				 errdetail("PostgreSQL does not support leap seconds.")));
	return tz;
}

/* ---- finding the next one ---- */

/* The offset from UTC at an instant; returns the next change, or NEVER. */
static pg_time_t
offset_at(pg_time_t instant, const pg_tz *tz, long *offset, long *next_offset)
{
	pg_time_t	boundary;
	int			isdst;
	int			next_isdst;
	int			found = pg_next_dst_boundary(&instant, offset, &isdst, &boundary, next_offset,
									 &next_isdst, tz);

	if (found < 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));
	return found > 0 ? boundary : NEVER;
}

/* The smallest and the largest offset that labels of a day can have. */
static void
offsets_of_day(pg_time_t midnight, const pg_tz *tz, long *low, long *high)
{
	pg_time_t	instant = midnight - MAX_OFFSET_SECS;
	pg_time_t	end = midnight + SECS_PER_DAY + MAX_OFFSET_SECS;
	long		offset;
	long		next;

	*low = LONG_MAX;
	*high = LONG_MIN;
	while (instant < end)
	{
		instant = offset_at(instant, tz, &offset, &next);
		*low = Min(*low, offset);
		*high = Max(*high, offset);
	}
}

/* The first instant after "after" at which something with this label runs. */
static pg_time_t
label_after(pg_time_t label, bool every_hour, pg_time_t after, const pg_tz *tz)
{
	pg_time_t	from = label - MAX_OFFSET_SECS;

	while (from <= label + MAX_OFFSET_SECS)
	{
		long		offset;
		long		next_offset;
		pg_time_t	boundary = offset_at(from, tz, &offset, &next_offset);
		pg_time_t	instant = label - offset;

		if (instant >= from && instant < boundary)
		{
			if (instant > after)
				return instant;
			if (!every_hour)
				break;
		}
		if (boundary == NEVER)
			break;
		if (!every_hour && label >= boundary + offset && label < boundary + next_offset)
			return boundary > after ? boundary : NEVER;
		from = boundary;
	}
	return NEVER;
}

static bool
day_matches(const UdbCron *cron, int jdate)
{
	int			year;
	int			month;
	int			day;
	bool		by_day;
	bool		by_weekday;

	j2date(jdate, &year, &month, &day);
	if ((cron->months & (1U << month)) == 0)
		return false;
	by_day = (cron->days & (1U << day)) != 0;
	by_weekday = (cron->weekdays & (1U << j2day(jdate))) != 0;
	return cron->either_day ? by_day || by_weekday : by_day && by_weekday;
}

/* The first firing after "after" and before "best" of a day, or "best". */
static pg_time_t
next_on_day(const UdbCron *cron, pg_time_t midnight, const pg_tz *tz, pg_time_t after,
			pg_time_t best)
{
	long		low;
	long		high;

	offsets_of_day(midnight, tz, &low, &high);
	for (int hour = 0; hour < HOURS_PER_DAY; hour++)
	{
		if ((cron->hours & (1U << hour)) == 0)
			continue;
		for (int minute = 0; minute < MINS_PER_HOUR; minute++)
		{
			pg_time_t	label = midnight + hour * SECS_PER_HOUR + minute * SECS_PER_MINUTE;

			/* all its instants, and the end of a gap that it is in, lie between these two */
			if ((cron->minutes & (UINT64CONST(1) << minute)) == 0 || label - low <= after)
				continue;
			if (label - high >= best)
				return best;
			best = Min(best, label_after(label, cron->hours == ALL_HOURS, after, tz));
		}
	}
	return best;
}

static TimestampTz
next_of_fields(const UdbCron *cron, const pg_tz *tz, TimestampTz after)
{
	const int64 epoch = ((int64) POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	pg_time_t	after_secs = after / USECS_PER_SEC - (after % USECS_PER_SEC < 0) + epoch;
	struct pg_tm *tm = pg_localtime(&after_secs, tz);
	pg_time_t	best = NEVER;
	TimestampTz result;
	int			first;

	if (tm == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));

	/* labels of the day before can come again */
	first = date2j(tm->tm_year + 1900, tm->tm_mon + 1, tm->tm_mday) - 1;
	for (int jdate = first; jdate < first + MAX_SEARCH_DAYS; jdate++)
	{
		pg_time_t	midnight = ((pg_time_t) jdate - UNIX_EPOCH_JDATE) * SECS_PER_DAY;

		if (best != NEVER && midnight - MAX_OFFSET_SECS >= best)
			break;
		if (day_matches(cron, jdate))
			best = next_on_day(cron, midnight, tz, after_secs, best);
	}
	if (best == NEVER)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("schedule never fires"),
				 errdetail("No month that it names has such a day.")));
	if (pg_mul_s64_overflow(best - epoch, USECS_PER_SEC, &result) || !IS_VALID_TIMESTAMP(result))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));
	return result;
}

TimestampTz
udb_cron_next(const UdbCron *cron, const pg_tz *tz, TimestampTz after, TimestampTz anchor)
{
	int64		intervals;
	int64		usecs;
	TimestampTz result;

	if (TIMESTAMP_NOT_FINITE(after) || TIMESTAMP_NOT_FINITE(anchor))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));
	if (cron->every == 0)
		return next_of_fields(cron, tz, after);
	intervals = after > anchor ? (after - anchor) / cron->every + 1 : 1;
	if (pg_mul_s64_overflow(intervals, cron->every, &usecs) ||
		pg_add_s64_overflow(anchor, usecs, &result) || !IS_VALID_TIMESTAMP(result))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range")));
	return result;
}
