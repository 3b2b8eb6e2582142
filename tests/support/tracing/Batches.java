// SPDX-License-Identifier: Apache-2.0
import org.voltdb.SQLStmt;
import org.voltdb.VoltProcedure;
import org.voltdb.VoltTable;

/** Executes a number of batches with a number of statements each. */
public class Batches extends VoltProcedure {
    public final SQLStmt read = new SQLStmt("select v from t where id = ?");

    public long run(long id, long batches, long statements) {
        for (long batch = 0; batch < batches; batch++) {
            for (long statement = 0; statement < statements; statement++) {
                voltQueueSQL(read, id);
            }
            voltExecuteSQL();
        }
        return batches;
    }
}
