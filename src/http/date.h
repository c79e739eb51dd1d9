// SPDX-License-Identifier: Apache-2.0
// The dates of HTTP and of S3, read and written; all are UTC.
//
// Pure functions, any thread; one DateTexts belongs to one thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvern::http {

using std::chrono::sys_seconds;
using SysMilliseconds = std::chrono::sys_time<std::chrono::milliseconds>;

// The second of a time that is counted in nanoseconds, as WallClock and stores tell it.
inline sys_seconds second_of(std::int64_t time_ns) {
    return sys_seconds(std::chrono::floor<std::chrono::seconds>(std::chrono::nanoseconds(time_ns)));
}

// The three forms that HTTP knows: "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT" (70 to 99 are of
// the last century) and "Sun Nov  6 08:49:37 1994". Strict, but the name of the day need not fit the date.
std::optional<sys_seconds> parse_http_date(std::string_view text);
std::string http_date(sys_seconds time);  // the first form

// "20260131T120000Z", the form of x-amz-date.
using BasicDate = std::array<char, 16>;
std::optional<sys_seconds> parse_basic_date(std::string_view text);
BasicDate basic_date(sys_seconds time);

// "2026-01-31T12:00:00.000Z", the form of XML documents. Read with or without a fraction, which is cut off after
// milliseconds.
std::optional<SysMilliseconds> parse_iso_date(std::string_view text);
std::string iso_date(SysMilliseconds time);

// The texts of now, written anew only when the second has changed. The views last until the next call.
class DateTexts {
  public:
    std::string_view http(sys_seconds now);
    std::string_view basic(sys_seconds now);

  private:
    void update(sys_seconds now);

    sys_seconds written_for_ = sys_seconds::min();
    std::string http_;
    BasicDate basic_{};
};

}  // namespace kvern::http
