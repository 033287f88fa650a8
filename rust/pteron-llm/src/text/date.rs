//! `strftime_now` of chat templates: the present day and time, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
const SECONDS_OF_DAY: u64 = 86_400;

/// The present time in the form that `form` describes; `None` for a code that is not known.
pub(super) fn now(form: &str) -> Option<String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    formatted(seconds, form)
}

fn formatted(seconds: u64, form: &str) -> Option<String> {
    let (days, rest) = (seconds / SECONDS_OF_DAY, seconds % SECONDS_OF_DAY);
    let (year, month, day) = civil(days);
    let name = MONTHS.get(month as usize - 1)?;
    let weekday = DAYS.get((days % 7) as usize)?;
    let mut out = String::new();
    let mut letters = form.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        match letters.next()? {
            'Y' => out += &year.to_string(),
            'y' => out += &format!("{:02}", year % 100),
            'm' => out += &format!("{month:02}"),
            'B' => out += name,
            'b' => out += name.get(..3)?,
            'd' => out += &format!("{day:02}"),
            'A' => out += weekday,
            'a' => out += weekday.get(..3)?,
            'H' => out += &format!("{:02}", rest / 3600),
            'M' => out += &format!("{:02}", rest / 60 % 60),
            'S' => out += &format!("{:02}", rest % 60),
            '%' => out.push('%'),
            _ => return None,
        }
    }
    Some(out)
}

/// Year, month and day of a day since 1970-01-01, by years that begin in March (Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    // 400 years of 146,097 days; day 0 of an era is the first of March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 Thursday 00:00:00"),
            (951_782_399, "2000-02-28 Monday 23:59:59"),
            (951_782_400, "2000-02-29 Tuesday 00:00:00"),
            (951_868_800, "2000-03-01 Wednesday 00:00:00"),
            (4_107_542_400, "2100-03-01 Monday 00:00:00"),
            (1_732_709_106, "2024-11-27 Wednesday 12:05:06"),
        ] {
            assert_eq!(formatted(seconds, "%Y-%m-%d %A %H:%M:%S").unwrap(), text);
        }
        assert_eq!(formatted(1_732_709_106, "%d %b %y (%B, %a) %%").unwrap(), "27 Nov 24 (November, Wed) %");
        assert_eq!(formatted(0, "%Q"), None);
        assert_eq!(formatted(0, "%"), None);
    }
}
