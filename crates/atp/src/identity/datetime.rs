//! Parses times as directories and HTTP servers write them.
//!
//! The format is RFC 3339 with a zone. The result is in microseconds since 1970; finer
//! digits are dropped. Years before 1970 and leap seconds are refused, because no
//! directory uses them.

/// Parses `2024-05-01T12:00:00.123Z`, or the same form with an offset, to microseconds
/// since 1970.
pub fn datetime_micros(text: &str) -> Option<u64> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, rest) = rest.split_at_checked(8)?;
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = fields(time, ':', [2, 2, 2])?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (fraction_micros, zone) = fraction(rest)?;
    let seconds = days(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second;
    let seconds = i64::try_from(seconds).ok()?.checked_sub(offset(zone)?)?;
    let micros = u64::try_from(seconds).ok()?.checked_mul(1_000_000)?;
    micros.checked_add(fraction_micros)
}

fn number(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// Parses three numbers of given lengths.
fn fields(text: &str, between: char, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(between);
    let mut numbers = [0; 3];
    for (place, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == length)?;
        *place = number(part)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// The fraction in microseconds, zero if there is none, and the text after it.
fn fraction(rest: &str) -> Option<(u64, &str)> {
    let Some(rest) = rest.strip_prefix('.') else {
        return Some((0, rest));
    };
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (digits, zone) = rest.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let six = digits.bytes().chain(std::iter::repeat(b'0')).take(6);
    let micros = six.fold(0, |micros, digit| micros * 10 + u64::from(digit - b'0'));
    Some((micros, zone))
}

/// The number of seconds by which a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (sign, span) = match zone.split_at_checked(1)? {
        ("+", span) => (1, span),
        ("-", span) => (-1, span),
        _ => return None,
    };
    let (hours, minutes) = span.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    Some(sign * i64::try_from(hours * 3600 + minutes * 60).ok()?)
}

/// The number of days from 1970 to a date; `None` if there is no such date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    let length = *lengths.get(before)?;
    if year < 1970 || day == 0 || day > length {
        return None;
    }
    // Leap days of all years before this one.
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    let months: u64 = lengths.iter().take(before).sum();
    Some(years + months + day - 1)
}
