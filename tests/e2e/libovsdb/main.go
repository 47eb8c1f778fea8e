// What Go programs do with a database by libovsdb: one client changes it, others follow by their caches. The database
// has the schema crates/ovsdb-server/tests/data/all.ovsschema; the end-to-end test test_database_clients.py runs this.
//
// usage: libovsdb unix:SOCKET
//
// Prints what the caches hold in the end, as JSON; ends with 1 and a reason if something is not as it should be.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Top is a row of the table top.
type Top struct {
	UUID    string            `ovsdb:"_uuid"`
	Name    string            `ovsdb:"name"`
	Kids    []string          `ovsdb:"kids"`
	Heir    *string           `ovsdb:"heir"`
	ByName  map[string]string `ovsdb:"byname"`
	Friends []string          `ovsdb:"friends"`
}

// Kid is a row of the table kid, which is there only while a row refers to it.
type Kid struct {
	UUID string   `ovsdb:"_uuid"`
	Name string   `ovsdb:"name"`
	Sub  []string `ovsdb:"sub"`
}

// Few is a row of the table few, of which there may be three.
type Few struct {
	UUID string `ovsdb:"_uuid"`
	N    int    `ovsdb:"n"`
}

// Root is a row of the table root.
type Root struct {
	UUID string            `ovsdb:"_uuid"`
	I    int               `ovsdb:"i"`
	R    float64           `ovsdb:"r"`
	B    bool              `ovsdb:"b"`
	S    string            `ovsdb:"s"`
	OS   *string           `ovsdb:"os"`
	SI   []int             `ovsdb:"si"`
	MSS  map[string]string `ovsdb:"mss"`
}

const deadline = 90 * time.Second

func check(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func connect(ctx context.Context, endpoint string) client.Client {
	models, err := model.NewClientDBModel("A", map[string]model.Model{"top": &Top{}, "kid": &Kid{}, "few": &Few{}, "root": &Root{}})
	check("model", err)
	made, err := client.NewOVSDBClient(models, client.WithEndpoint(endpoint))
	check("client", err)
	check("connect", made.Connect(ctx))
	return made
}

func transact(ctx context.Context, c client.Client, operations ...ovsdb.Operation) error {
	results, err := c.Transact(ctx, operations...)
	if err != nil {
		return err
	}
	failed, err := ovsdb.CheckOperationResults(results, operations)
	if err != nil {
		return fmt.Errorf("%w: %v", err, failed)
	}
	return nil
}

// until waits for what a cache must come to hold: there are no guesses of how long that takes.
func until(what string, holds func() bool) {
	for end := time.Now().Add(deadline); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			log.Fatalf("not seen: %s", what)
		}
	}
}

func one(operations []ovsdb.Operation, err error) []ovsdb.Operation {
	check("operation", err)
	return operations
}

// few lists the numbers in a cache.
func few(ctx context.Context, c client.Client) []int {
	var rows []Few
	check("list", c.List(ctx, &rows))
	numbers := []int{}
	for _, row := range rows {
		numbers = append(numbers, row.N)
	}
	sort.Ints(numbers)
	return numbers
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: libovsdb unix:SOCKET")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
	defer cancel()
	writer, watcher, part := connect(ctx, os.Args[1]), connect(ctx, os.Args[1]), connect(ctx, os.Args[1])
	for _, c := range []client.Client{writer, watcher} {
		_, err := c.MonitorAll(ctx)
		check("monitor", err)
	}
	least := Few{}
	condition := model.Condition{Field: &least.N, Function: ovsdb.ConditionGreaterThan, Value: 2}
	_, err := part.Monitor(ctx, part.NewMonitor(client.WithConditionalTable(&least, []model.Condition{condition})))
	check("monitor with a condition", err)

	// Rows that name each other, in one transaction.
	kid, sub := &Kid{UUID: "kid", Name: "k", Sub: []string{"sub"}}, &Kid{UUID: "sub", Name: "s"}
	heir := "kid"
	top := &Top{UUID: "top", Name: "t", Kids: []string{"kid"}, Heir: &heir, ByName: map[string]string{"k": "kid"}, Friends: []string{"sub"}}
	check("insert", transact(ctx, writer, append(append(one(writer.Create(sub)), one(writer.Create(kid))...), one(writer.Create(top))...)...))
	text := "x y"
	root := &Root{I: -7, R: 2.5, B: true, S: "é\"\n", OS: &text, SI: []int{3, 1, 2}, MSS: map[string]string{"a": "b", "": "c d"}}
	check("insert of all types", transact(ctx, writer, one(writer.Create(root))...))

	var found []Top
	until("the inserted row", func() bool { check("list", watcher.List(ctx, &found)); return len(found) == 1 })
	made := found[0]
	if made.Heir == nil || len(made.Kids) != 1 || *made.Heir != made.Kids[0] || made.ByName["k"] != made.Kids[0] {
		log.Fatalf("references are wrong: %+v", made)
	}
	var roots []Root
	until("the row of all types", func() bool { check("list", watcher.List(ctx, &roots)); return len(roots) == 1 })
	sort.Ints(roots[0].SI)
	root.UUID, root.SI = roots[0].UUID, []int{1, 2, 3}
	if !reflect.DeepEqual(roots[0], *root) {
		log.Fatalf("%+v was read for %+v", roots[0], *root)
	}

	// A change, a mutation, a wait; and what must fail.
	made.Name = "other"
	check("update", transact(ctx, writer, one(writer.Where(&made).Update(&made, &made.Name))...))
	roots[0].SI = nil
	check("mutate", transact(ctx, writer, one(writer.Where(&roots[0]).Mutate(&roots[0],
		model.Mutation{Field: &roots[0].SI, Mutator: ovsdb.MutateOperationInsert, Value: []int{9}},
		model.Mutation{Field: &roots[0].I, Mutator: ovsdb.MutateOperationMultiply, Value: 6}))...))
	until("the mutated row", func() bool {
		var now []Root
		check("list", watcher.List(ctx, &now))
		return len(now) == 1 && now[0].I == -42 && len(now[0].SI) == 4
	})
	zero := 0
	check("wait", transact(ctx, writer, one(writer.Where(&made).Wait(ovsdb.WaitConditionEqual, &zero, &made, &made.Name))...))
	// A row of default values alone would be sent without a row, which servers refuse.
	for n := 1; n <= 3; n++ {
		check("insert", transact(ctx, writer, one(writer.Create(&Few{N: n}))...))
	}
	if err := transact(ctx, writer, one(writer.Create(&Few{N: 4}))...); err == nil {
		log.Fatal("a fourth row was inserted")
	}
	until("all numbers", func() bool { return reflect.DeepEqual(few(ctx, watcher), []int{1, 2, 3}) })
	until("the numbers of the condition", func() bool { return reflect.DeepEqual(few(ctx, part), []int{3}) })
	check("move into the condition", transact(ctx, writer, one(writer.WhereCache(func(row *Few) bool { return row.N == 1 }).Update(&Few{N: 5}))...))
	until("a row that came into the condition", func() bool { return reflect.DeepEqual(few(ctx, part), []int{3, 5}) })
	check("delete", transact(ctx, writer, one(writer.WhereCache(func(row *Few) bool { return row.N == 3 }).Delete())...))
	until("a row that went", func() bool { return reflect.DeepEqual(few(ctx, part), []int{5}) })

	// Kids go with the last reference to them, and weak references with the kids.
	made.Kids, made.Heir, made.ByName = []string{}, nil, map[string]string{}
	check("unreference", transact(ctx, writer, one(writer.Where(&made).Update(&made, &made.Kids, &made.Heir, &made.ByName))...))
	until("the end of the kids", func() bool {
		var kids []Kid
		var tops []Top
		check("list", watcher.List(ctx, &kids))
		check("list", watcher.List(ctx, &tops))
		return len(kids) == 0 && len(tops) == 1 && len(tops[0].Friends) == 0 && tops[0].Name == "other"
	})
	for _, c := range []client.Client{writer, watcher} {
		check("echo", c.Echo(ctx))
	}
	last, err := json.Marshal(map[string][]int{"few": few(ctx, watcher), "part": few(ctx, part)})
	check("result", err)
	fmt.Println(string(last))
	for _, c := range []client.Client{writer, watcher, part} {
		c.Disconnect()
	}
}
