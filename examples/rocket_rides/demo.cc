#include "demo.h"

#include "child_process.h"
#include "http.h"
#include "simulator.h"

#include <boost/json.hpp>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace rides {
namespace {

namespace json = boost::json;

constexpr int kRides = 40;
constexpr int kAnswersBeforeTheKill = 12;
constexpr std::chrono::seconds kAskTimeout{10};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rocket-rides-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

json::object ask(const std::string& url, std::string_view path) {
  return json::parse(HttpClient(url, kAskTimeout).get(path).body).as_object();
}

// How often each ride stands in a list of charges or receipts.
std::map<std::int64_t, int> count_by_ride(const json::array& list) {
  std::map<std::int64_t, int> counts;
  for (const json::value& item : list) ++counts[item.as_object().at("ride").as_int64()];
  return counts;
}

class Demo {
 public:
  explicit Demo(const std::string& database)
      : database_(database.empty() ? "sqlite:" + folder_.file("rides.db") : database) {}

  int run() {
    start_the_others();
    book_and_kill();
    finish_what_was_left();
    ask_everything_again();
    return judge();
  }

 private:
  void start_the_others() {
    processor_ = std::make_unique<ChildProcess>(
        std::vector<std::string>{"processor", "--port", "0", "--latency", "0.15", "--errors", "10", "--drops", "10"});
    processor_url_ = processor_->wait_until_it_listens();
    mailer_ = std::make_unique<ChildProcess>(std::vector<std::string>{
        "mailer", "--port", "0", "--drops", "20", "--database", "sqlite:" + folder_.file("mail.db")});
    mailer_url_ = mailer_->wait_until_it_listens();
    std::cout << "A payment processor is running that fails one call in five, and a mailer that loses one answer in "
                 "five.\n";
  }

  // The arguments of every process that runs bookings. The lease is short: nobody wants to wait in a demo.
  std::vector<std::string> ours(std::vector<std::string> arguments) const {
    for (const auto& more : {std::string("--database"), database_, std::string("--processor"), processor_url_,
                             std::string("--lease"), std::string("2")}) {
      arguments.push_back(more);
    }
    return arguments;
  }

  void book_and_kill() {
    ChildProcess api(ours({"api", "--port", "0"}));
    riders_.api = api.wait_until_it_listens();
    riders_.rides = kRides;
    riders_.patience = std::chrono::milliseconds(0);
    Simulator simulator(riders_);
    std::atomic<bool> killed = false;
    std::cout << "Riders book " << kRides << " rides, eight at a time, over POST /rides ...\n";
    const SimulatorReport report = simulator.book([&](int over) {
      if (over < kAnswersBeforeTheKill || killed.exchange(true)) return;
      api.kill();
      std::cout << "... and the API is killed with SIGKILL in the middle.\n";
    });
    std::cout << "  " << report.booked + report.declined << " riders have an answer, " << report.left
              << " have none; nobody knows whether their cards were charged.\n";
    if (report.left == 0) throw std::runtime_error("the kill came too late to show anything");
  }

  void finish_what_was_left() {
    std::cout << "The API stays down. A completer finishes what had begun; an enqueuer delivers the receipts.\n";
    ChildProcess completer(ours({"completer", "--grace", "1", "--backoff", "0.5", "--until-done", "60"}));
    wait_for(completer, "completer");
    std::cout << "  the processor was asked " << ask(processor_url_, "/counts").at("requests") << " times and charged "
              << ask(processor_url_, "/counts").at("charges") << " times\n";
  }

  void ask_everything_again() {
    ChildProcess api(ours({"api", "--port", "0"}));
    riders_.api = api.wait_until_it_listens();
    riders_.patience = std::chrono::seconds(60);
    Simulator simulator(riders_);
    const SimulatorReport first = simulator.book();
    const SimulatorReport again = simulator.book();
    std::cout << "The API is back, and all riders send their requests again, with the same keys: " << first.booked
              << " are told 201, " << first.declined << " that their card was declined; " << first.replayed
              << " of the answers were there already.\n";
    wrong_ += first.refused + first.left + first.differing + again.refused + again.left + again.differing;
    booked_ = first.booked;
    wrong_ += again.booked != first.booked ? 1 : 0;
    api.stop();
    ChildProcess enqueuer(
        {"enqueuer", "--database", database_, "--mailer", mailer_url_, "--backoff", "0.1", "--until-done", "60"});
    wait_for(enqueuer, "enqueuer");
  }

  int judge() {
    const json::object charges = ask(processor_url_, "/charges");
    const json::object receipts = ask(mailer_url_, "/receipts");
    const auto charged = count_by_ride(charges.at("charges").as_array());
    const auto sent = count_by_ride(receipts.at("receipts").as_array());
    int charged_twice = 0;
    int receipt_missing = 0;
    int receipt_twice = 0;
    for (const auto& [ride, times] : charged) {
      charged_twice += times > 1 ? 1 : 0;
      const auto found = sent.find(ride);
      receipt_missing += found == sent.end() ? 1 : 0;
      receipt_twice += found != sent.end() && found->second > 1 ? 1 : 0;
    }
    const int uncharged = booked_ - static_cast<int>(charged.size());
    std::cout << "\n  rides booked             " << booked_ << "\n  rides charged            " << charged.size()
              << "\n  charged more than once   " << charged_twice << "\n  receipts sent            " << sent.size()
              << " (in " << receipts.at("deliveries") << " deliveries)\n  receipts missing         " << receipt_missing
              << "\n  receipts sent twice      " << receipt_twice << "\n  answers that changed     " << wrong_ << "\n";
    const bool right = uncharged == 0 && charged_twice == 0 && receipt_missing == 0 && receipt_twice == 0 &&
                       sent.size() == charged.size() && wrong_ == 0;
    std::cout << (right ? "\nEvery ride was charged once and has one receipt.\n" : "\nWRONG: see the counts.\n");
    return right ? 0 : 1;
  }

  static void wait_for(ChildProcess& process, const std::string& name) {
    if (process.wait() != 0) throw std::runtime_error("the " + name + " did not finish its work");
  }

  TemporaryFolder folder_;
  std::string database_;
  std::unique_ptr<ChildProcess> processor_;
  std::unique_ptr<ChildProcess> mailer_;
  std::string processor_url_;
  std::string mailer_url_;
  SimulatorOptions riders_;
  int booked_ = 0;
  int wrong_ = 0;
};

} // namespace

int run_demo(const std::string& database) {
  std::cout << std::unitbuf; // each line when it is true, also into a pipe
  return Demo(database).run();
}

} // namespace rides
