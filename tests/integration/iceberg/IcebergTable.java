// An Iceberg table by Iceberg itself, in a folder of its own (HadoopTables).
//
//     IcebergTable FOLDER COMMAND...
//
// A command is `create` (columns n and day, partitioned by day), `append=FIRST:COUNT`, `rows`, `rename`, `replace` (the
// files without a day by one), `delete` (of a file), `properties`, or `expire` (all snapshots but the last).

import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.types.Types;

public class IcebergTable {
    static final LocalDate FIRST_DAY = LocalDate.of(2026, 11, 27);

    static Table create(HadoopTables tables, String folder) {
        Schema schema = new Schema(
            Types.NestedField.optional(1, "n", Types.LongType.get()),
            Types.NestedField.optional(2, "day", Types.DateType.get()),
            Types.NestedField.optional(3, "at", Types.TimestampType.withZone()),
            Types.NestedField.optional(4, "tags", Types.ListType.ofOptional(5, Types.StringType.get())));
        PartitionSpec spec = PartitionSpec.builderFor(schema).identity("day").build();
        return tables.create(schema, spec, Map.of(TableProperties.FORMAT_VERSION, "2"), folder);
    }

    static Record row(Table table, long number) {
        Record row = GenericRecord.create(table.schema());
        row.set(0, number);
        row.set(1, number % 3 == 2 ? null : FIRST_DAY.plusDays(number % 3));
        row.set(2, OffsetDateTime.parse("2026-01-01T00:00:00Z"));
        List<String> tags = new ArrayList<>();
        tags.add("x");
        tags.add(null);
        row.set(3, tags);
        return row;
    }

    static DataFile file(Table table, List<Record> rows) throws Exception {
        PartitionKey key = new PartitionKey(table.spec(), table.schema());
        key.partition(new InternalRecordWrapper(table.schema().asStruct()).wrap(rows.get(0)));
        String path = table.locationProvider().newDataLocation(UUID.randomUUID() + ".parquet");
        DataWriter<Record> writer = Parquet.writeData(table.io().newOutputFile(path))
            .schema(table.schema())
            .createWriterFunc(GenericParquetWriter::create)
            .withSpec(table.spec())
            .withPartition(key)
            .overwrite()
            .build();
        try (writer) {
            rows.forEach(writer::write);
        }
        return writer.toDataFile();
    }

    static void append(Table table, int first, int count) throws Exception {
        var commit = table.newAppend();
        for (int number = first; number < first + count; number++) {
            commit.appendFile(file(table, List.of(row(table, number))));
        }
        commit.commit();
    }

    static List<DataFile> files(Table table) throws Exception {
        List<DataFile> found = new ArrayList<>();
        try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
            tasks.forEach(task -> found.add(task.file()));
        }
        return found;
    }

    static void replace(Table table) throws Exception {
        List<DataFile> small = files(table).stream()
            .filter(file -> file.partition().get(0, Integer.class) == null)
            .toList();
        List<Record> rows = new ArrayList<>();
        try (CloseableIterable<Record> all = IcebergGenerics.read(table).build()) {
            all.forEach(row -> {
                if (row.getField("day") == null) {
                    rows.add(row);
                }
            });
        }
        table.newRewrite().rewriteFiles(Set.copyOf(small), Set.of(file(table, rows))).commit();
    }

    static void rows(Table table) throws Exception {
        try (CloseableIterable<Record> all = IcebergGenerics.read(table).build()) {
            for (Record row : all) {
                List<String> texts = new ArrayList<>();
                for (Types.NestedField field : table.schema().columns()) {
                    texts.add(field.name() + "=" + row.getField(field.name()));
                }
                System.out.println("ROW " + String.join("|", texts));
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        HadoopTables tables = new HadoopTables(new Configuration());
        String folder = arguments[0];
        for (int place = 1; place < arguments.length; place++) {
            String[] words = arguments[place].split("[=:]");
            if (words[0].equals("create")) {
                create(tables, folder);
                continue;
            }
            Table table = tables.load(folder);
            switch (words[0]) {
                case "append" -> append(table, Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                case "rows" -> rows(table);
                case "rename" -> table.updateSchema().renameColumn("n", "number").commit();
                case "replace" -> replace(table);
                case "delete" -> table.newDelete().deleteFile(files(table).get(0)).commit();
                case "properties" -> table.updateProperties().set("owner", "another writer").commit();
                case "expire" -> table.expireSnapshots()
                    .expireOlderThan(System.currentTimeMillis() + 1000).retainLast(1).commit();
                default -> throw new IllegalArgumentException(arguments[place]);
            }
        }
    }
}
