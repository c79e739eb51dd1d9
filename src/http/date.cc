// SPDX-License-Identifier: Apache-2.0
#include "http/date.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvern::http {
namespace {

using namespace std::chrono;

constexpr std::array<std::string_view, 12> months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::array<std::string_view, 7> days{"Sunday",   "Monday", "Tuesday", "Wednesday",
                                               "Thursday", "Friday", "Saturday"};

// Takes a text apart from its left; once something did not fit, everything after fails.
class Scanner {
  public:
    explicit Scanner(std::string_view text) : rest_(text) {}

    void literal(std::string_view expected) {
        if (rest_.substr(0, expected.size()) != expected) return give_up();
        rest_.remove_prefix(expected.size());
    }

    int number(std::size_t digits) {
        if (rest_.size() < digits) return give_up(), 0;
        int value = 0;
        for (const char c : rest_.substr(0, digits)) {
            if (c < '0' || c > '9') return give_up(), 0;
            value = value * 10 + (c - '0');
        }
        rest_.remove_prefix(digits);
        return value;
    }

    int padded_number() {  // of two places, the first may be a space
        if (!rest_.starts_with(' ')) return number(2);
        literal(" ");
        return number(1);
    }

    int month() {  // 1..12
        const auto found = std::find(months.begin(), months.end(), rest_.substr(0, 3));
        if (found == months.end()) return give_up(), 0;
        rest_.remove_prefix(3);
        return static_cast<int>(found - months.begin()) + 1;
    }

    bool optional_literal(std::string_view expected) {
        if (!rest_.starts_with(expected)) return false;
        rest_.remove_prefix(expected.size());
        return true;
    }

    // Digits up to the first other character; their first three as milliseconds.
    int fraction() {
        int value = 0;
        std::size_t count = 0;
        for (; count < rest_.size() && rest_[count] >= '0' && rest_[count] <= '9'; ++count) {
            if (count < 3) value = value * 10 + (rest_[count] - '0');
        }
        if (count == 0) give_up();
        rest_.remove_prefix(count);
        for (; count < 3; ++count) value *= 10;
        return value;
    }

    bool done() const { return good_ && rest_.empty(); }

  private:
    void give_up() {
        good_ = false;
        rest_ = {};
    }

    std::string_view rest_;
    bool good_ = true;
};

struct Parts {
    int year = 0;
    int month = 0;
    int day = 0;
    int hour = 0;
    int minute = 0;
    int second = 0;
};

std::optional<sys_seconds> to_time(const Parts& parts) {
    const year_month_day date{year{parts.year}, std::chrono::month{static_cast<unsigned>(parts.month)},
                              std::chrono::day{static_cast<unsigned>(parts.day)}};
    // A leap second counts as the second that follows.
    if (!date.ok() || parts.hour > 23 || parts.minute > 59 || parts.second > 60) return std::nullopt;
    return sys_days(date) + hours(parts.hour) + minutes(parts.minute) + seconds(parts.second);
}

Parts to_parts(sys_seconds time) {
    const auto midnight = floor<std::chrono::days>(time);
    const year_month_day date{midnight};
    const hh_mm_ss clock{time - midnight};
    return {static_cast<int>(date.year()),
            static_cast<int>(static_cast<unsigned>(date.month())),
            static_cast<int>(static_cast<unsigned>(date.day())),
            static_cast<int>(clock.hours().count()),
            static_cast<int>(clock.minutes().count()),
            static_cast<int>(clock.seconds().count())};
}

void scan_clock(Scanner& scanner, Parts& parts) {
    parts.hour = scanner.number(2);
    scanner.literal(":");
    parts.minute = scanner.number(2);
    scanner.literal(":");
    parts.second = scanner.number(2);
}

// "Sun, 06 Nov 1994 08:49:37 GMT", what follows the ", ".
std::optional<sys_seconds> parse_fixdate(std::string_view text) {
    Scanner scanner(text);
    Parts parts;
    parts.day = scanner.number(2);
    scanner.literal(" ");
    parts.month = scanner.month();
    scanner.literal(" ");
    parts.year = scanner.number(4);
    scanner.literal(" ");
    scan_clock(scanner, parts);
    // Mail's way to say it, as some signers do.
    if (!scanner.optional_literal(" -0000") && !scanner.optional_literal(" +0000")) scanner.literal(" GMT");
    return scanner.done() ? to_time(parts) : std::nullopt;
}

// "Sunday, 06-Nov-94 08:49:37 GMT", what follows the ", ".
std::optional<sys_seconds> parse_rfc850(std::string_view text) {
    Scanner scanner(text);
    Parts parts;
    parts.day = scanner.number(2);
    scanner.literal("-");
    parts.month = scanner.month();
    scanner.literal("-");
    const int year_of_century = scanner.number(2);
    parts.year = year_of_century + (year_of_century >= 70 ? 1900 : 2000);
    scanner.literal(" ");
    scan_clock(scanner, parts);
    scanner.literal(" GMT");
    return scanner.done() ? to_time(parts) : std::nullopt;
}

// "Sun Nov  6 08:49:37 1994", what follows the day.
std::optional<sys_seconds> parse_asctime(std::string_view text) {
    Scanner scanner(text);
    Parts parts;
    scanner.literal(" ");
    parts.month = scanner.month();
    scanner.literal(" ");
    parts.day = scanner.padded_number();
    scanner.literal(" ");
    scan_clock(scanner, parts);
    scanner.literal(" ");
    parts.year = scanner.number(4);
    return scanner.done() ? to_time(parts) : std::nullopt;
}

}  // namespace

std::optional<sys_seconds> parse_http_date(std::string_view text) {
    for (const std::string_view day : days) {
        const std::string_view abbreviated = day.substr(0, 3);
        if (!text.starts_with(abbreviated)) continue;
        const std::string_view rest = text.substr(abbreviated.size());
        if (rest.starts_with(", ")) return parse_fixdate(rest.substr(2));
        if (rest.starts_with(' ')) return parse_asctime(rest);
        if (!text.starts_with(day) || !text.substr(day.size()).starts_with(", ")) return std::nullopt;
        return parse_rfc850(text.substr(day.size() + 2));
    }
    return std::nullopt;
}

std::string http_date(sys_seconds time) {
    const Parts parts = to_parts(time);
    const weekday day{floor<std::chrono::days>(time)};
    return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", days[day.c_encoding()].substr(0, 3), parts.day,
                       months[static_cast<std::size_t>(parts.month - 1)], parts.year, parts.hour, parts.minute,
                       parts.second);
}

std::optional<sys_seconds> parse_basic_date(std::string_view text) {
    Scanner scanner(text);
    Parts parts;
    parts.year = scanner.number(4);
    parts.month = scanner.number(2);
    parts.day = scanner.number(2);
    scanner.literal("T");
    parts.hour = scanner.number(2);
    parts.minute = scanner.number(2);
    parts.second = scanner.number(2);
    scanner.literal("Z");
    return scanner.done() ? to_time(parts) : std::nullopt;
}

BasicDate basic_date(sys_seconds time) {
    const Parts parts = to_parts(time);
    BasicDate text{};
    fmt::format_to_n(text.data(), text.size(), "{:04}{:02}{:02}T{:02}{:02}{:02}Z", parts.year, parts.month, parts.day,
                     parts.hour, parts.minute, parts.second);
    return text;
}

std::optional<SysMilliseconds> parse_iso_date(std::string_view text) {
    Scanner scanner(text);
    Parts parts;
    parts.year = scanner.number(4);
    scanner.literal("-");
    parts.month = scanner.number(2);
    scanner.literal("-");
    parts.day = scanner.number(2);
    scanner.literal("T");
    scan_clock(scanner, parts);
    const milliseconds fraction(scanner.optional_literal(".") ? scanner.fraction() : 0);
    scanner.literal("Z");
    const auto time = scanner.done() ? to_time(parts) : std::nullopt;
    if (!time) return std::nullopt;
    return *time + fraction;
}

std::string iso_date(SysMilliseconds time) {
    const auto second = floor<seconds>(time);
    const Parts parts = to_parts(second);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.year, parts.month, parts.day, parts.hour,
                       parts.minute, parts.second, (time - second).count());
}

std::string_view DateTexts::http(sys_seconds now) {
    update(now);
    return http_;
}

std::string_view DateTexts::basic(sys_seconds now) {
    update(now);
    return {basic_.data(), basic_.size()};
}

void DateTexts::update(sys_seconds now) {
    if (now == written_for_) return;
    http_ = http_date(now);
    basic_ = basic_date(now);
    written_for_ = now;
}

}  // namespace kvern::http
