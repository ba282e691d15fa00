// admin: the listener for operators. Health, metrics, the console's page, and the JSON API behind it and behind
// `oncekey keys` and `oncekey jobs`.
//
// The table in admin.cc has every page with the role it needs; docs/ADMIN_API.md describes them for programs, and
// access.h says who is let in. GET pages read; POST pages take JSON. A page that acts needs a reason, leaves a line in
// the audit trail, and acts once for each Idempotency-Key.
#pragma once

#include "admin/access.h"
#include "admin/action_memory.h"
#include "admin/audit_lines.h"
#include "admin/audit_trail.h"
#include "admin/bulk_run.h"
#include "admin/job_pages.h"
#include "admin/key_pages.h"
#include "admin/overview.h"
#include "admin/store_pages.h"
#include "http/server.h"

namespace oncekey {

class Admin final : public Handler {
 public:
  // `counts` is what StoreWatch has counted.
  Admin(GatewayShared& shared, const StoreCounts& counts, Loop& loop, const std::string& version);

  // What every answer of the listener has, unless it has one of the name itself: for browsers, which then run, frame
  // and guess nothing.
  static Headers answer_headers();

  // The public listener, once it exists; until then the gateway is not ready.
  void serves(const Server& gateway);
  // The audit log is open: what it has of a record is on the record's page. Once, before the first request.
  void reads_audit_log();
  Backups& backups() { return store_.backups(); }

  // On its loop.
  void start() { overview_.start(); }
  void stop();
  // Has stopped, and no call to the store is under way. From any thread.
  bool over() const { return overview_.over() && bulk_.over(); }

  Task<void> handle(Exchange& exchange) override;

 private:
  enum class Needs {
    reader,    // any role
    operators, // the operators' role
    proof,     // any role, by a token or a certificate itself and not by a session
    session,
  };
  enum class Kind {
    reads,
    acts,         // with a reason, an Idempotency-Key and a line in the audit trail
    acts_on_many, // the same; with "dry_run" it only counts
    polled,       // does not keep an operator's session alive
  };
  struct Page {
    std::string_view method; // GET stands for HEAD too
    std::string_view path;   // a * stands for one part of it
    Needs needs;
    Kind kind;
    std::function<Task<PageAnswer>(PageRequest&)> run;
  };
  std::vector<Page> pages();
  const Page* find_page(const RequestHead& head, PageRequest& request) const;

  Task<PageAnswer> answer(Exchange& exchange);
  Task<PageAnswer> answer_visitor(Exchange& exchange, const Visitor& visitor);
  // Once for each Idempotency-Key.
  Task<PageAnswer> act_once(const Page& page, PageRequest& request, const std::string& text);
  PageAnswer ready(bool stranger) const;
  PageAnswer actions() const;
  Task<PageAnswer> audit_page(const PageRequest& request);
  // What to say to a request for a page that is not there.
  PageAnswer no_such_page() const;

  GatewayShared& shared_;
  AuditTrail audit_;
  Access access_;
  ActionMemory acted_;
  Overview overview_;
  KeyPages keys_;
  JobPages jobs_;
  BulkRuns bulk_;
  StorePages store_;
  const Server* gateway_ = nullptr;
  const std::vector<Page> pages_;
  AuditPages audit_log_; // its thread ends first
};

} // namespace oncekey
